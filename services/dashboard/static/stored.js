// What this browser is to remember. Where it keeps no storage, or has no room, that is until the page is left.
const instead = new Map();

function tried(work, otherwise) {
  try {
    return work();
  } catch (error) {
    if (error instanceof DOMException) return otherwise();
    throw error;
  }
}

const remembering = (storage) => ({
  get: (name) => instead.get(name) ?? tried(() => globalThis[storage].getItem(name), () => null),
  set: (name, value) => tried(() => globalThis[storage].setItem(name, value), () => instead.set(name, value)),
  remove: (name) => (instead.delete(name), tried(() => globalThis[storage].removeItem(name), () => {})),
});

export const local = remembering("localStorage");
export const ofTab = remembering("sessionStorage");
export const PERSON = "coevo-name"; // of the person at this browser
