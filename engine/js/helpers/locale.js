// The engine knows no locales and would ignore or misread one: refused instead.
(function () {
  function guard(on, name) {
    const original = on[name];
    const guarded = function (...args) {
      if (args.length > 0 && args[0] !== undefined) {
        throw new TypeError(name + " takes no locale here: expressions have no Intl");
      }
      return original.call(this);
    };
    Object.defineProperty(on, name, { value: guarded, writable: true, configurable: true });
  }
  guard(Number.prototype, "toLocaleString");
  guard(BigInt.prototype, "toLocaleString");
  guard(Date.prototype, "toLocaleString");
  guard(Date.prototype, "toLocaleDateString");
  guard(Date.prototype, "toLocaleTimeString");
})
