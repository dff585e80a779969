// The table of all trials: filter by status, phase and text; sort by any column.

function filterRows(rows, inputs, output) {
  const wanted = Object.fromEntries(inputs.map((input) => [input.dataset.filter, input.value.trim().toLowerCase()]));
  let shown = 0;
  for (const row of rows) {
    const fits = (!wanted.status || row.dataset.status === wanted.status) && (!wanted.phase || row.dataset.phase === wanted.phase) &&
      (!wanted.text || row.textContent.toLowerCase().includes(wanted.text));
    row.hidden = !fits;
    shown += fits ? 1 : 0;
  }
  output.textContent = `${shown} of ${rows.length}`;
}

// Numbers by value, texts by alphabet (numbers in them by size); what is unknown comes last either way.
function compare(a, b, sign) {
  const [x, y] = [a, b].map((cell) => (cell.dataset.value !== undefined ? Number(cell.dataset.value) : cell.textContent.trim()));
  const [noX, noY] = [x, y].map((value) => value === '–' || value === '');
  if (noX || noY) {
    return Number(noX) - Number(noY);
  }
  return sign * (typeof x === 'number' && typeof y === 'number' ? x - y : String(x).localeCompare(String(y), 'en', {numeric: true}));
}

export function setUpTable() {
  const table = document.getElementById('trial-table');
  if (!table) {
    return;
  }
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const inputs = [...document.querySelectorAll('[data-filter]')];
  const output = document.getElementById('trial-count');
  for (const input of inputs) {
    input.addEventListener('input', () => filterRows(rows, inputs, output));
  }
  filterRows(rows, inputs, output);
  // A link to a trial shows it, whatever the filter hides.
  window.addEventListener('hashchange', () => {
    const row = document.getElementById(location.hash.slice(1));
    if (row && row.hidden) {
      inputs.forEach((input) => { input.value = ''; });
      filterRows(rows, inputs, output);
      row.scrollIntoView();
    }
  });
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement('button');
    button.type = 'button';
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener('click', () => {
      const isAscending = head.getAttribute('aria-sort') !== 'ascending';
      for (const other of table.tHead.rows[0].cells) {
        other.removeAttribute('aria-sort');
      }
      head.setAttribute('aria-sort', isAscending ? 'ascending' : 'descending');
      rows.sort((a, b) => compare(a.cells[column], b.cells[column], isAscending ? 1 : -1));
      body.append(...rows);
    });
  });
}
