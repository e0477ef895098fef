// The JSON form that a Buffer has in Node.
(function () {
  Object.defineProperty(Buffer.prototype, "toJSON", {
    value: function toJSON() { return { type: "Buffer", data: Array.from(this) }; },
    writable: true,
    configurable: true,
  });
})
