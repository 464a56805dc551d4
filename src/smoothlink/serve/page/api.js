// Requests to the server of this page. Its token, where it needs one, is stored until the tab is closed.

const KEY = "smoothlink-token";

// Its message is the server's reason.
export class RefusedRequest extends Error {
  constructor(reason, status) {
    super(reason);
    this.status = status;
  }
}

// Why a request failed, in a sentence.
export const reason = (error) => (error instanceof RefusedRequest ? error.message : "The server does not respond.");

// Sends JSON, or a file as it is, and returns the response.
async function send(path, body, signal) {
  const isFile = body instanceof Blob;
  for (;;) {
    const token = sessionStorage.getItem(KEY);
    const options = {
      method: body ? "POST" : "GET",
      headers: {
        ...(body && { "Content-Type": isFile ? "application/octet-stream" : "application/json" }),
        ...(token && { Authorization: `Bearer ${token}` }),
      },
      body: body && !isFile ? JSON.stringify(body) : body,
      signal,
    };
    // A connection that ends without a response may be that of a process that was killed: another one responds. What
    // changes the model is not sent again, since it may have been taken.
    const again = ["update", "forget"].includes(path) ? Promise.reject.bind(Promise) : () => fetch(path, options);
    const response = await fetch(path, options).catch(again);
    if (response.ok) return response;
    if (response.status !== 401) {
      const content = await response.json().catch(() => ({}));
      throw new RefusedRequest(content.reason ?? `The server responded with status ${response.status}.`, response.status);
    }
    await readToken(token);
  }
}

export const request = async (path, body, signal) => (await send(path, body, signal)).json();
export const requestLines = async (path, body) => (await (await send(path, body)).text()).split("\n");
export const requestFile = async (path, body) => (await send(path, body)).blob();

let reading = null; // several requests may be refused at once: one dialog is enough

function readToken(refused) {
  reading ??= new Promise((resolve) => {
    const dialog = document.getElementById("token");
    const secret = document.getElementById("secret");
    secret.value = "";
    document.getElementById("tokenlabel").textContent = refused ? "This token is wrong. Type another." : "This server needs a token.";
    dialog.oncancel = (event) => event.preventDefault();
    dialog.querySelector("form").onsubmit = (event) => {
      event.preventDefault();
      sessionStorage.setItem(KEY, secret.value.trim());
      dialog.close();
      reading = null;
      resolve();
    };
    dialog.showModal();
  });
  return reading;
}
