// Patterns made at run time: \p{…} needs the u flag, and an empty lookahead sends
// it to the engine that knows it (see analysis.regexp for literals).
(function () {
  const Native = RegExp;
  function fix(pattern, flags) {
    if (pattern instanceof Native) {
      if (flags === undefined) return [pattern];
      pattern = pattern.source;
    }
    const text = String(pattern === undefined ? "" : pattern);
    if (!/^(?:[^\\]|\\[^pP])*\\[pP]\{/.test(text) || text.startsWith("(?=)")) return [pattern, flags];
    if (!String(flags === undefined ? "" : flags).includes("u")) throw new SyntaxError("\\p{…} needs the u flag");
    return ["(?=)" + text, flags];
  }
  function Fixed(pattern, flags) {
    const target = new.target === undefined || new.target === Fixed ? Native : new.target;
    return Reflect.construct(Native, fix(pattern, flags), target);
  }
  Object.defineProperties(Fixed, Object.getOwnPropertyDescriptors(Native));
  Object.defineProperty(Native.prototype, "constructor", { value: Fixed, writable: true, configurable: true });
  Object.defineProperty(globalThis, "RegExp", { value: Fixed, writable: true, configurable: true });
})
