// What a reader has chosen, kept in the address behind "#", so that a link shows the same: "#memory&rank=3&theme=dark".
// The part without "=" is the place on the page. Whatever an address holds is only compared with what can be chosen.
const state = new Map();
let place = '';

const decode = (text) => {
  try {
    return decodeURIComponent(text);
  } catch {
    return '';
  }
};

function read() {
  state.clear();
  place = '';
  for (const part of location.hash.slice(1).split('&').filter(Boolean)) {
    const at = part.indexOf('=');
    if (at > 0) {
      state.set(part.slice(0, at), decode(part.slice(at + 1)));
    } else {
      place = part;
    }
  }
}

function write() {
  const parts = [...state].map(([key, value]) => `${key}=${encodeURIComponent(value)}`);
  const hash = `#${[place, ...parts].filter(Boolean).join('&')}`;
  if (hash !== location.hash && !(hash === '#' && location.hash === '')) {
    history.replaceState(null, '', hash);
  }
}

/** What has been chosen under `key`, or undefined. */
export const chosen = (key) => state.get(key);

/** From now on the address says so; an empty or null value is not said. */
export function choose(key, value) {
  if (value === null || value === undefined || value === '') {
    state.delete(key);
  } else {
    state.set(key, String(value));
  }
  write();
}

const pending = new Map();
/** The same for what changes many times in a second. */
export function chooseSoon(key, value) {
  clearTimeout(pending.get(key));
  pending.set(key, setTimeout(() => choose(key, value), 300));
}

/** Reads the address; afterwards `arrive(place)` is called whenever a link on the page leads somewhere. */
export function setUpState(arrive) {
  read();
  window.addEventListener('hashchange', () => {
    if (location.hash.includes('=')) {
      location.reload();  // typed by hand: everything is chosen anew
      return;
    }
    place = location.hash.slice(1);
    write();
    arrive(place);
  });
}

/** The place that the address named, where the browser did not know it for what follows it. */
export const namedPlace = () => (location.hash.includes('=') ? place : '');
