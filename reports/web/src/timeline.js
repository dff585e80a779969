// Swim lanes of one traced step. Only what is in view and at least a pixel wide is handed to the chart, so that tens of
// thousands of slices stay quick.
import {axis, colors, common, draw, forPrint, isNarrow, widthOf} from './charts.js';
import {list, readData, tip} from './dom.js';
import {axisLabels, bytes, ns} from './format.js';
import {chooseSoon, chosen} from './state.js';

const classColors = (c) => [c.green, c.blue, c.sky, c.black, c.orange, c.yellow, c.red, c.pink];

let data = null;
let lanes = null;
let rank = null;
let zoomable = null;
let labels = null;  // of the part of the step in view
let view = null;  // from and to, in ns; null: all of it

/** Columns to slices, once. */
function unpack() {
  if (lanes) {
    return;
  }
  data = readData('timeline');
  if (!data) {
    lanes = [];
    return;
  }
  lanes = data.lanes.map((lane) => {
    let start = 0;
    const of = (column, i) => (Array.isArray(column) ? column[i] : column);
    const slices = lane.start.map((delta, i) => {
      start += delta;
      return {start, end: start + lane.length[i], wait: of(lane.wait, i), kind: lane.class[i], name: data.names[lane.name[i]],
        group: data.groups[of(lane.group, i)], layer: of(lane.layer, i), microBatch: of(lane.micro_batch, i), bytes: of(lane.bytes, i),
        count: of(lane.count, i)};
    });
    return {rank: lane.rank, stream: lane.stream, label: lane.label, slices, kinds: new Set(lane.class)};
  });
  rank ??= lanes[0]?.rank ?? 0;
}

// Slices of a lane between two times, neighbours of less than a pixel merged.
function visible(lane, from, to, nsPerPixel) {
  const result = [];
  for (const slice of lane.slices) {
    if (slice.end < from || slice.start > to) {
      continue;
    }
    const last = result[result.length - 1];
    if (last && slice.end - slice.start < nsPerPixel && last.end - last.start < 4 * nsPerPixel && last.kind === slice.kind &&
        slice.start - last.end < nsPerPixel) {
      result[result.length - 1] = {...last, end: Math.max(last.end, slice.end), count: last.count + slice.count,
        wait: last.count === 1 ? 0 : last.wait, merged: true};
    } else {
      result.push(slice);
    }
  }
  return result;
}

function describe(slice) {
  const length = slice.end - slice.start;
  return tip(slice.merged || slice.count > 1 ? `${slice.count} × ${data.classes[slice.kind]}` : slice.name, [
    `${ns(length)} (${length.toLocaleString('en')} ns), from ${ns(slice.start)}`,
    [slice.layer >= 0 ? `layer ${slice.layer}` : '', slice.microBatch >= 0 ? `micro-batch ${slice.microBatch}` : ''].filter(Boolean).join(', '),
    slice.group ? `group ${slice.group}` : '',
    slice.bytes > 0 && data.classes[slice.kind] === 'communication' ? `${bytes(slice.bytes)} sent` : '',
    slice.wait > 0 ? `of it ${ns(slice.wait)} waiting for a participant` : '',
    slice.merged ? 'zoom in to see them apart' : '',
  ]);
}

// Black or white, whichever reads better on a colour written as #rrggbb.
function inkOn(color) {
  const [r, g, b] = [1, 3, 5].map((i) => (parseInt(color.slice(i, i + 2), 16) / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? '#000' : '#fff';
}

function renderer(c, shown) {
  const fill = classColors(c);
  return (params, api) => {
    const slice = shown[api.value(3)];
    const y = api.value(0);
    const left = api.coord([api.value(1), y]);
    const right = api.coord([api.value(2), y]);
    const height = api.size([0, 1])[1] * 0.72;
    const area = params.coordSys;
    const x1 = Math.max(left[0], area.x);
    const x2 = Math.min(Math.max(right[0], left[0] + 0.7), area.x + area.width);
    if (x2 <= x1) {
      return null;
    }
    const top = left[1] - height / 2;
    const box = (from, to, more) => ({type: 'rect', shape: {x: from, y: top, width: to - from, height},
      style: {fill: fill[slice.kind], stroke: c.page, lineWidth: to - from > 4 ? 0.8 : 0, ...more}});
    const waitEnd = slice.wait > 0 ? Math.min(x2, Math.max(x1, api.coord([slice.start + slice.wait, y])[0])) : x1;
    const children = [];
    if (waitEnd > x1) {
      children.push(box(x1, waitEnd, {opacity: 0.32}));
    }
    if (x2 > waitEnd) {
      children.push(box(waitEnd, x2, {}));
    }
    // Wide slices carry their name: the second channel beside colour.
    if (x2 - x1 > 7 * slice.name.length + 8 && !slice.merged && height > 11) {
      children.push({type: 'text', style: {text: slice.name, x: x1 + 4, y: left[1], textVerticalAlign: 'middle', fill: inkOn(fill[slice.kind]),
        fontSize: 11}, silent: true});
    }
    return children.length === 1 ? children[0] : {type: 'group', children};
  };
}

function laneList() {
  return rank === 'all' ? lanes.filter((lane) => lane.stream === 0).map((lane) => ({...lane, label: `${data.unit} ${lane.rank}`}))
    : lanes.filter((lane) => lane.rank === rank);
}

function series(c, rows, from, to, width) {
  const nsPerPixel = (to - from) / Math.max(100, width);
  const shown = [];
  rows.forEach((lane, index) => {
    for (const slice of visible(lane, from, to, nsPerPixel)) {
      shown.push({...slice, lane: index});
    }
  });
  const render = renderer(c, shown);
  return data.classes.map((name, kind) => ({
    type: 'custom', id: name, name, itemStyle: {color: classColors(c)[kind]}, renderItem: render, clip: true,
    encode: {x: [1, 2], y: 0},
    data: shown.map((slice, i) => ({value: [slice.lane, slice.start, slice.end, i], slice})).filter((d) => d.slice.kind === kind),
  })).filter((s, kind) => rows.some((lane) => lane.kinds.has(kind)));
}

export function drawTimeline() {
  unpack();
  if (!data) {
    return null;
  }
  const c = colors();
  const rows = laneList();
  const left = isNarrow() ? 74 : 100;
  const width = widthOf('timeline') - left - 16;
  const top = isNarrow() ? 66 : 40;
  const bottom = forPrint() ? 30 : 76;  // on paper there is nothing to zoom with
  const [from, to] = forPrint() || !view ? [0, data.step] : view.map((value) => Math.min(data.step, value));
  labels = axisLabels('ns', from, to);
  const chart = draw('timeline', {
    ...common(c),
    tooltip: {...common(c).tooltip, trigger: 'item', formatter: (p) => (p.data?.slice ? describe(p.data.slice) : '')},
    grid: {left, right: 16, top, bottom},
    xAxis: axis(c, {type: 'value', min: 0, max: data.step, axisLabel: {formatter: (value) => labels(value), showMaxLabel: false}}),
    yAxis: axis(c, {type: 'category', inverse: true, data: rows.map((lane) => lane.label), axisTick: {show: false},
      axisLabel: {interval: 0}, splitLine: {show: true, lineStyle: {color: c.grid}}}),
    dataZoom: forPrint() ? [] : [
      {type: 'inside', startValue: from, endValue: to, filterMode: 'none', zoomOnMouseWheel: 'ctrl', moveOnMouseMove: true, moveOnMouseWheel: false,
        preventDefaultMouseMove: false},
      {type: 'slider', startValue: from, endValue: to, filterMode: 'none', height: 22, bottom: 14, borderColor: c.line, labelFormatter: (value) => labels(value), textStyle: {color: c.soft},
        showDataShadow: false, brushSelect: true, fillerColor: 'rgba(86,180,233,0.22)', moveHandleSize: 5},
    ],
    series: series(c, rows, from, to, width),
  }, top + bottom + Math.max(34 * rows.length, 80));
  zoomable = chart;
  let pending = false;
  chart?.on('datazoom', () => {
    if (pending) {
      return;
    }
    pending = true;
    requestAnimationFrame(() => {
      pending = false;
      if (chart.isDisposed()) {
        return;  // drawn anew in the meantime
      }
      const zoom = chart.getOption().dataZoom[0];
      const isAll = zoom.startValue <= 0 && zoom.endValue >= data.step;
      view = isAll ? null : [zoom.startValue, zoom.endValue];
      chooseSoon('zoom', isAll ? '' : view.map((value) => Math.round(value)).join('-'));
      labels = axisLabels('ns', zoom.startValue, zoom.endValue);
      chart.setOption({series: series(c, rows, zoom.startValue, zoom.endValue, width)}, {replaceMerge: ['series']});
    });
  });
  return chart;
}

// The same zoom for keyboards: in and out around the middle, a third of the view to either side.
function zoomBy(how) {
  const chart = zoomable;
  if (!chart) {
    return;  // not drawn yet
  }
  const now = chart.getOption().dataZoom[0];
  const width = now.endValue - now.startValue;
  const middle = (now.startValue + now.endValue) / 2;
  const wanted = {in: width / 2, out: width * 2, all: data.step}[how] ?? width;
  const size = Math.min(data.step, Math.max(2000, wanted));
  const shift = {left: -width / 3, right: width / 3}[how] ?? 0;
  const start = Math.min(data.step - size, Math.max(0, middle + shift - size / 2));
  chart.dispatchAction({type: 'dataZoom', dataZoomIndex: 0, startValue: start, endValue: start + size});
}

export function setUpTimeline() {
  const zoom = /^(\d+)-(\d+)$/.exec(chosen('zoom') ?? '');
  if (zoom && Number(zoom[2]) > Number(zoom[1])) {
    view = [Number(zoom[1]), Number(zoom[2])];
  }
  list('timeline', (value) => {
    rank = value === 'all' ? 'all' : Number(value);
    drawTimeline();
  }, 'rank');
  for (const button of document.querySelectorAll('button[data-timeline-zoom]')) {
    button.addEventListener('click', () => zoomBy(button.dataset.timelineZoom));
  }
}
