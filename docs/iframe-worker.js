// The search runs in a worker, which browsers refuse to pages that are opened from a disk: there it runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      const inside = frame.contentWindow, script = inside.document.createElement("script")
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      inside.importScripts = () => {}
      this.inside = new Promise(ready => { script.onload = () => ready(inside) })
      script.src = new URL(url, location)
      inside.document.body.append(script)
    }
    postMessage(data) {
      this.inside.then(inside => inside.dispatchEvent(new MessageEvent("message", { data })))
    }
  }
}
