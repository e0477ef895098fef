// Object.groupBy and Map.groupBy.
(function () {
  function define(on, value) {
    if (!on.groupBy) Object.defineProperty(on, "groupBy", { value: value, writable: true, configurable: true });
  }
  define(Object, function groupBy(items, callback) {
    const groups = Object.create(null);
    let i = 0;
    for (const item of items) {
      const key = callback(item, i++);
      const name = typeof key === "symbol" ? key : String(key);
      if (name in groups) groups[name].push(item);
      else groups[name] = [item];
    }
    return groups;
  });
  define(Map, function groupBy(items, callback) {
    const groups = new Map();
    let i = 0;
    for (const item of items) {
      const key = callback(item, i++);
      if (groups.has(key)) groups.get(key).push(item);
      else groups.set(key, [item]);
    }
    return groups;
  });
})
