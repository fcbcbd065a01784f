/* A search in pages that are opened as files, without a server and without a network: browsers refuse web workers for
   `file:` addresses. This runs the script of the search in a hidden frame instead. The theme finds it by its name,
   `IFrameWorker`; a script in the frame may call `importScripts`, which returns a promise here. */
if (location.protocol === "file:") {
  class IFrameWorker extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      const inside = (this.inside = frame.contentWindow)
      const load = (source) =>
        new Promise((resolve, reject) => {
          const script = inside.document.createElement("script")
          script.src = source
          script.onload = resolve
          script.onerror = () => reject(new Error(`cannot load ${source}`))
          inside.document.head.appendChild(script)
        })
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      inside.importScripts = async (...sources) => {
        for (const source of sources) await load(source)
      }
      this.loaded = load(new URL(url, location.href).href)
    }
    postMessage(data) {
      this.loaded.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })))
    }
    terminate() {
      this.inside.frameElement.remove()
    }
  }
  window.IFrameWorker = IFrameWorker
  window.Worker = IFrameWorker
}
