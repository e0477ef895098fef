// TextEncoder and TextDecoder for UTF-8.
(function (encode, decode) {
  class TextEncoder {
    get encoding() { return "utf-8"; }
    encode(text = "") { return new Uint8Array(encode(String(text))); }
  }
  class TextDecoder {
    constructor(label = "utf-8", options = {}) {
      if (!/^\s*(utf-?8|unicode-1-1-utf-8)\s*$/i.test(String(label))) {
        throw new RangeError("TextDecoder knows utf-8 only");
      }
      Object.defineProperties(this, {
        encoding: { value: "utf-8" },
        fatal: { value: Boolean(options.fatal) },
        ignoreBOM: { value: Boolean(options.ignoreBOM) },
      });
    }
    decode(input = new Uint8Array(0)) {
      const view = ArrayBuffer.isView(input);
      if (!view && !(input instanceof ArrayBuffer)) throw new TypeError("decode takes a buffer or a view of one");
      const start = view ? input.byteOffset : 0;
      const text = decode(view ? input.buffer : input, start, start + input.byteLength, this.fatal);
      if (text === null) throw new TypeError("the data is no valid UTF-8");
      return !this.ignoreBOM && text.charCodeAt(0) === 0xfeff ? text.slice(1) : text;
    }
  }
  Object.defineProperty(globalThis, "TextEncoder", { value: TextEncoder, writable: true, configurable: true });
  Object.defineProperty(globalThis, "TextDecoder", { value: TextDecoder, writable: true, configurable: true });
})
