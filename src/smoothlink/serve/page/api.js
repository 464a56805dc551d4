// Requests to the server this page came from. A token, where it asks for one, is kept until the tab is closed.

const KEY = "smoothlink-token";

export class Refusal extends Error {}

export async function ask(path, body, signal) {
  for (;;) {
    const token = sessionStorage.getItem(KEY);
    const response = await fetch(path, {
      method: body ? "POST" : "GET",
      headers: { ...(body && { "Content-Type": "application/json" }), ...(token && { Authorization: `Bearer ${token}` }) },
      body: body && JSON.stringify(body),
      signal,
    });
    if (response.status === 401) {
      await askForToken();
      continue;
    }
    const answer = await response.json().catch(() => ({ reason: `The server answered ${response.status}.` }));
    if (!response.ok) throw new Refusal(answer.reason);
    return answer;
  }
}

let asking = null; // several requests may be refused at once: one question is enough

function askForToken() {
  asking ??= new Promise((resolve) => {
    const dialog = document.getElementById("token");
    const secret = document.getElementById("secret");
    secret.value = "";
    dialog.oncancel = (event) => event.preventDefault();
    dialog.querySelector("form").onsubmit = (event) => {
      event.preventDefault();
      sessionStorage.setItem(KEY, secret.value.trim());
      dialog.close();
      asking = null;
      resolve();
    };
    dialog.showModal();
  });
  return asking;
}
