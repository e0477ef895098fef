// Patterns made at run time: \p{…} needs the u flag, and an empty lookahead sends
// it to the engine that knows it (see analysis.regexp for literals).
(function () {
  const Native = RegExp;
  function fix(args) {
    let [pattern, flags] = args;
    if (pattern instanceof Native) {
      if (flags === undefined) return args;
      pattern = pattern.source;
    }
    const text = String(pattern === undefined ? "" : pattern);
    if (!/^(?:[^\\]|\\[^pP])*\\[pP]\{/.test(text) || text.startsWith("(?=)")) return args;
    if (!String(flags === undefined ? "" : flags).includes("u")) throw new SyntaxError("\\p{…} needs the u flag");
    return ["(?=)" + text, flags];
  }
  const Fixed = new Proxy(Native, {
    apply(target, self, args) { return Reflect.apply(target, self, fix(args)); },
    construct(target, args, self) { return Reflect.construct(target, fix(args), self); },
  });
  Object.defineProperty(globalThis, "RegExp", { value: Fixed, writable: true, configurable: true });
  Object.defineProperty(Native.prototype, "constructor", { value: Fixed, writable: true, configurable: true });
})
