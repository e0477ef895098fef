// structuredClone for the values that expressions have: scalars, plain objects,
// arrays, dates, regular expressions, maps, sets, errors, buffers, and cycles of these.
(function () {
  function refuse(what) {
    const e = new Error(what + " could not be cloned");
    e.name = "DataCloneError";
    return e;
  }
  function fill(from, to, clone) {
    for (const key of Object.keys(from)) {
      Object.defineProperty(to, key, { value: clone(from[key]), writable: true, enumerable: true, configurable: true });
    }
    return to;
  }
  function structuredClone(value) {
    const seen = new Map();
    function clone(v) {
      if (typeof v === "function" || typeof v === "symbol") throw refuse("a " + typeof v);
      if (v === null || typeof v !== "object") return v;
      if (seen.has(v)) return seen.get(v);
      function keep(copy) { seen.set(v, copy); return copy; }
      if (Array.isArray(v)) return fill(v, keep(new Array(v.length)), clone);
      if (v instanceof Date) return keep(new Date(v.getTime()));
      if (v instanceof RegExp) return keep(new RegExp(v.source, v.flags));
      if (v instanceof Map) {
        const copy = keep(new Map());
        v.forEach(function (item, key) { copy.set(clone(key), clone(item)); });
        return copy;
      }
      if (v instanceof Set) {
        const copy = keep(new Set());
        v.forEach(function (item) { copy.add(clone(item)); });
        return copy;
      }
      if (v instanceof ArrayBuffer) return keep(v.slice(0));
      if (ArrayBuffer.isView(v)) return keep(new v.constructor(v));
      if (v instanceof Error) {
        const copy = keep(new Error(v.message));
        copy.name = v.name;
        return copy;
      }
      if (v instanceof Number || v instanceof String || v instanceof Boolean) return keep(Object(v.valueOf()));
      if (v instanceof Promise || v instanceof WeakMap || v instanceof WeakSet) throw refuse("a " + v.constructor.name);
      return fill(v, keep({}), clone);
    }
    return clone(value);
  }
  Object.defineProperty(globalThis, "structuredClone", { value: structuredClone, writable: true, configurable: true });
})
