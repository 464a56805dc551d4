// The table in the browser's own database, so that a reload or a crash loses no correction. There is one table at a time:
// its head, and its rows by their numbers.

const STORE = "table";

const opened = () =>
  new Promise((resolve, reject) => {
    const asked = indexedDB.open("smoothlink", 1);
    asked.onupgradeneeded = () => asked.result.createObjectStore(STORE);
    asked.onsuccess = () => resolve(asked.result);
    asked.onerror = () => reject(asked.error);
  });

// Calls `work` with the store, and returns its result when all is on disk.
async function within(mode, work) {
  const database = await opened();
  try {
    return await new Promise((resolve, reject) => {
      const transaction = database.transaction(STORE, mode);
      const result = work(transaction.objectStore(STORE));
      transaction.oncomplete = () => resolve(result);
      transaction.onerror = transaction.onabort = () => reject(transaction.error);
    });
  } finally {
    database.close();
  }
}

export const save = (entries) => within("readwrite", (store) => entries.forEach(([key, value]) => store.put(value, key)));
export const clear = () => within("readwrite", (store) => store.clear());

export async function load() {
  const [head, rows] = await within("readonly", (store) => [store.get("head"), store.getAll(IDBKeyRange.bound(0, Infinity))]);
  return head.result && rows.result.length ? { ...head.result, rows: rows.result } : null;
}
