// Values that this browser remembers. If it allows no storage, or the storage is full, they last until the page is
// left.

/** @type {Map<string, string>} */
const fallback = new Map();

/**
 * The result of `action`, or that of `onRefusal` if the browser refuses access to its storage.
 *
 * @template Result
 * @param {() => Result} action
 * @param {() => Result} onRefusal
 */
function tryStorage(action, onRefusal) {
  try {
    return action();
  } catch (error) {
    if (error instanceof DOMException) return onRefusal();
    throw error;
  }
}

/** @param {"localStorage" | "sessionStorage"} storage */
const storageWithFallback = (storage) => ({
  /** @param {string} key @returns {string | null} */
  get: (key) =>
    fallback.get(key) ??
    tryStorage(
      () => globalThis[storage].getItem(key),
      () => null,
    ),
  /** @param {string} key @param {string} value */
  set(key, value) {
    fallback.delete(key);
    tryStorage(
      () => globalThis[storage].setItem(key, value),
      () => void fallback.set(key, value),
    );
  },
  /** @param {string} key */
  remove(key) {
    fallback.delete(key);
    tryStorage(
      () => globalThis[storage].removeItem(key),
      () => {},
    );
  },
});

export const browserStorage = storageWithFallback("localStorage");
export const tabStorage = storageWithFallback("sessionStorage");
export const USER_NAME_KEY = "coevo-name"; // the name of the person who uses this browser
