// A plan's space: memory against throughput with its front, and a map of the large sizes.
import {axis, colors, common, draw, forPrint, isNarrow, widthOf} from './charts.js';
import {readData, tip} from './dom.js';
import {axisLabels, byteInterval, bytes, count} from './format.js';

const star = 'path://M5,0 L6.5,3.4 L10,3.8 L7.4,6.2 L8.1,10 L5,8 L1.9,10 L2.6,6.2 L0,3.8 L3.5,3.4 Z';
const cross = 'path://M0,1 L1,0 L5,4 L9,0 L10,1 L6,5 L10,9 L9,10 L5,6 L1,10 L0,9 L4,5 Z';

let sizes = 'tp cp|ep pp';

function describeMark(mark, what) {
  return tip(mark.label, [`${count(mark.tokens)} tokens/s on each device`, `${bytes(mark.bytes)} allocated`, what]);
}

export function drawFront() {
  const data = readData('front');
  if (!data) {
    return;
  }
  const c = colors();
  const marks = [...data.front, ...data.fits, ...data.others];
  const most = Math.max(data.capacity, ...marks.map((m) => m.bytes));
  const fastest = Math.max(...marks.map((m) => m.tokens));
  const interval = byteInterval(most);
  const points = (name, list, symbol, size, style) => ({type: 'scatter', name, symbol, symbolSize: size, itemStyle: style, z: 3,
    data: list.map((mark) => ({value: [mark.bytes, mark.tokens], mark, what: name}))});
  const series = [
    points('fits', data.fits, 'circle', 7, {color: c.blue, opacity: 0.6, borderColor: c.page, borderWidth: 0.5}),
    points('does not fit', data.others, cross, 7, {color: c.soft, opacity: 0.7}),
    {type: 'line', name: 'front', step: 'end', symbol: 'diamond', symbolSize: 8, z: 4, itemStyle: {color: c.orange}, lineStyle: {color: c.orange, width: 2},
      data: data.front.map((mark) => ({value: [mark.bytes, mark.tokens], mark, what: 'front'}))},
  ];
  if (data.first) {
    series.push({...points('best plan', [data.first], star, 18, {color: c.green, borderColor: c.page, borderWidth: 1}), z: 5});
  }
  series[0].markLine = {silent: true, symbol: 'none', lineStyle: {color: c.red, width: 2, type: 'solid'},
    label: {formatter: `fits up to ${bytes(data.capacity)}`, position: 'end', color: c.text, fontWeight: 600}, data: [{xAxis: data.capacity}]};
  draw('front', {
    ...common(c),
    tooltip: {...common(c).tooltip, trigger: 'item', formatter: (p) => (p.data?.mark ? describeMark(p.data.mark, p.data.what) : '')},
    grid: {left: isNarrow() ? 56 : 76, right: 24, top: isNarrow() ? 84 : 62, bottom: 50},
    xAxis: axis(c, {type: 'value', min: 0, max: Math.ceil(most / interval) * interval, interval, name: 'peak memory, allocated on the worst rank', nameLocation: 'middle', nameGap: 30,
      axisLabel: {formatter: axisLabels('bytes', 0, most), showMaxLabel: false}}),
    yAxis: axis(c, {type: 'value', min: 0, name: 'tokens/s', nameGap: 12, nameTextStyle: {align: 'right'}, axisLabel: {formatter: axisLabels('count', 0, fastest)}}),
    series,
  }, forPrint() ? 340 : 440);
}

// The cells of the map for a choice of sizes: the best of all that share them.
function cellsOf(data, rows, columns) {
  const cells = new Map();
  const name = (dims, i) => dims.map((dim) => `${dim} ${data[dim][i]}`).join(' · ');
  const order = (dims, i) => dims.map((dim) => data[dim][i]);
  const axes = [new Map(), new Map()];
  data.tp.forEach((_, i) => {
    const [row, column] = [name(rows, i), name(columns, i)];
    axes[0].set(row, order(rows, i));
    axes[1].set(column, order(columns, i));
    const key = `${row}|${column}`;
    const cell = cells.get(key) ?? {row, column, tokens: 0, bytes: 0, legal: 0, fit: 0, label: ''};
    const isFaster = data.tokens[i] > cell.tokens;
    const isLeaner = cell.tokens === 0 && data.legal[i] > 0 && (cell.legal === 0 || data.bytes[i] < cell.bytes);
    if (isFaster || isLeaner || cell.label === '') {
      Object.assign(cell, {tokens: data.tokens[i], bytes: data.bytes[i], label: data.label[i]});
    }
    cell.legal += data.legal[i];
    cell.fit += data.fit[i];
    cells.set(key, cell);
  });
  const sorted = (map) => [...map].sort(([, a], [, b]) => a.reduce((found, x, k) => found || x - b[k], 0)).map(([text]) => text);
  return {cells: [...cells.values()], rows: sorted(axes[0]), columns: sorted(axes[1])};
}

// From the page's colour to blue: one hue, so that only lightness tells.
function shade(c, ratio) {
  const [a, b] = [c.page, c.blue].map((color) => [1, 3, 5].map((i) => parseInt(color.slice(i, i + 2), 16)));
  return `#${a.map((x, i) => Math.round(x + (b[i] - x) * ratio).toString(16).padStart(2, '0')).join('')}`;
}

function drawCell(c, cells, fastest) {
  return (params, api) => {
    const cell = cells[params.dataIndex];
    const [x, y] = api.coord([api.value(0), api.value(1)]);
    const [width, height] = api.size([1, 1]);
    const box = {x: x - width / 2 + 0.5, y: y - height / 2 + 0.5, width: width - 1, height: height - 1};
    if (cell.fit === 0) {
      const r = Math.min(width, height) * (cell.legal > 0 ? 0.2 : 0.08);
      const line = (x1, y1, x2, y2) => ({type: 'line', shape: {x1, y1, x2, y2}, style: {stroke: c.soft, lineWidth: 1.2}});
      const mark = cell.legal > 0 ? [line(x - r, y - r, x + r, y + r), line(x - r, y + r, x + r, y - r)]
        : [{type: 'circle', shape: {cx: x, cy: y, r: Math.max(1, r)}, style: {fill: c.soft}}];
      return {type: 'group', children: [{type: 'rect', shape: box, style: {fill: c.page}}, ...mark]};
    }
    const ratio = cell.tokens / fastest;
    const rect = {type: 'rect', shape: box, style: {fill: shade(c, 0.12 + 0.88 * ratio ** 2), stroke: ratio === 1 ? c.orange : 'none', lineWidth: 2.5}};
    const text = count(cell.tokens);
    if (width < 7 * text.length + 4 || height < 14) {
      return rect;
    }
    return {type: 'group', children: [rect, {type: 'text', silent: true, style: {text, x, y, textAlign: 'center', textVerticalAlign: 'middle',
      fontSize: 11, fill: 0.12 + 0.88 * ratio ** 2 > 0.6 ? '#fff' : c.text}}]};
  };
}

export function drawSpace() {
  const data = readData('space');
  if (!data) {
    return;
  }
  const c = colors();
  const [rowDims, columnDims] = sizes.split('|').map((text) => text.split(' '));
  const {cells, rows, columns} = cellsOf(data, rowDims, columnDims);
  const fastest = Math.max(1, ...cells.map((cell) => cell.tokens));
  const left = Math.max(60, 20 + 7 * Math.max(...rows.map((text) => text.length)));
  const isTight = (widthOf('space') - left) / columns.length < 8 * Math.max(...columns.map((text) => text.length));
  const bottom = isTight ? 20 + 7 * Math.max(...columns.map((text) => text.length)) : 40;
  const cellHeight = Math.max(16, Math.min(34, 420 / rows.length));
  const labels = {interval: 0, hideOverlap: false, fontSize: 11};
  draw('space', {
    ...common(c),
    tooltip: {...common(c).tooltip, trigger: 'item', formatter: (p) => {
      const cell = cells[p.dataIndex];
      return tip(`${cell.row} · ${cell.column}`, cell.legal === 0 ? ['nothing is legal', cell.label]
        : [cell.fit > 0 ? `${count(cell.tokens)} tokens/s on each device` : 'nothing fits; the least memory:', `${bytes(cell.bytes)} allocated`, cell.label,
          `${count(cell.legal)} legal, ${count(cell.fit)} fit`]);
    }},
    grid: {left, right: 8, top: 8, bottom},
    xAxis: axis(c, {type: 'category', data: columns, axisTick: {show: false}, axisLabel: {...labels, rotate: isTight ? 90 : 0}}),
    yAxis: axis(c, {type: 'category', data: rows, inverse: true, axisTick: {show: false}, axisLabel: labels}),
    series: [{type: 'custom', renderItem: drawCell(c, cells, fastest), encode: {x: 0, y: 1},
      data: cells.map((cell) => [columns.indexOf(cell.column), rows.indexOf(cell.row)])}],
  }, 8 + bottom + cellHeight * rows.length);
}

export function setUpSpace() {
  document.querySelector('select[data-space]')?.addEventListener('change', (event) => {
    sizes = event.target.value;
    drawSpace();
  });
}
