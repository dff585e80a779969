// Reading the page: the data that the program wrote into it, and small elements made of text (never of markup).

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

/** Buttons with `data-NAME`: one of them is pressed; `choose(value)` when that changes. */
export function choice(name, choose) {
  const buttons = [...document.querySelectorAll(`button[data-${name}]`)];
  for (const button of buttons) {
    button.addEventListener('click', () => {
      for (const other of buttons) {
        other.setAttribute('aria-pressed', String(other === button));
      }
      choose(button.getAttribute(`data-${name}`));
    });
  }
}
