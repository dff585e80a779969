// Reading the page: the data that the program wrote into it, and small elements made of text (never of markup).
import {choose, chosen} from './state.js';

/** The JSON of `<script id="data-NAME">`, or null when the section is not there. */
export function readData(name) {
  const element = document.getElementById(`data-${name}`);
  return element ? JSON.parse(element.textContent) : null;
}

/** A tooltip as an element. Lines are texts: whatever they hold, they are shown and not interpreted. */
export function tip(title, lines) {
  const box = document.createElement('div');
  box.className = 'tip';
  const head = document.createElement('b');
  head.textContent = title;
  box.append(head);
  for (const line of lines.filter(Boolean)) {
    const row = document.createElement('div');
    row.textContent = line;
    box.append(row);
  }
  return box;
}

/** Buttons with `data-NAME`: one of them is pressed; `pick(value)` when that changes, and at once where the address says so. */
export function choice(name, pick) {
  const buttons = [...document.querySelectorAll(`button[data-${name}]`)];
  const valueOf = (button) => button.getAttribute(`data-${name}`);
  const press = (button) => {
    for (const other of buttons) {
      other.setAttribute('aria-pressed', String(other === button));
    }
    pick(valueOf(button));
  };
  for (const button of buttons) {
    button.addEventListener('click', () => {
      choose(name, valueOf(button));
      press(button);
    });
  }
  const asked = buttons.find((button) => valueOf(button) === chosen(name));
  if (asked) {
    press(asked);
  }
}

/** A list `select[data-NAME]`: `pick(value)` when it changes, and at once where the address names one of its options. */
export function list(name, pick, key = name) {
  const select = document.querySelector(`select[data-${name}]`);
  if (!select) {
    return;
  }
  select.addEventListener('change', () => {
    choose(key, select.value);
    pick(select.value);
  });
  if (chosen(key) !== undefined && [...select.options].some((option) => option.value === chosen(key))) {
    select.value = chosen(key);
    pick(select.value);
  }
}
