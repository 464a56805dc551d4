// Requests to the server of this page. Its token, where it needs one, is stored until the tab is closed.

const KEY = "smoothlink-token";

export class RefusedRequest extends Error {} // its message is the server's reason

export async function request(path, body, signal) {
  for (;;) {
    const token = sessionStorage.getItem(KEY);
    const response = await fetch(path, {
      method: body ? "POST" : "GET",
      headers: { ...(body && { "Content-Type": "application/json" }), ...(token && { Authorization: `Bearer ${token}` }) },
      body: body && JSON.stringify(body),
      signal,
    });
    if (response.status === 401) {
      await readToken();
      continue;
    }
    const content = await response.json().catch(() => ({ reason: `The server responded with status ${response.status}.` }));
    if (!response.ok) throw new RefusedRequest(content.reason);
    return content;
  }
}

let reading = null; // several requests may be refused at once: one dialog is enough

function readToken() {
  reading ??= new Promise((resolve) => {
    const dialog = document.getElementById("token");
    const secret = document.getElementById("secret");
    secret.value = "";
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
