// Search without a server: on file: pages, where browsers refuse workers, the script of a worker runs in a frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      const inside = frame.contentWindow, base = new URL(url, location);
      const loaded = (source) => new Promise((resolve) => {
        const script = inside.document.createElement("script");
        script.src = new URL(source, base);
        script.onload = resolve;
        inside.document.body.appendChild(script);
      });
      inside.importScripts = (...sources) =>
        sources.reduce((before, source) => before.then(() => loaded(source)), Promise.resolve());
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.ready = loaded(base);
      this.inside = inside;
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
    set onmessage(listener) {
      this.addEventListener("message", listener);
    }
    terminate() {
      this.inside.frameElement.remove();
    }
  };
}
