// What each knob was worth: where it alone varied, and how much of the spread of all trials goes with it.
import {axis, colors, common, draw, forPrint, hatch, isNarrow} from './charts.js';
import {readData, tip} from './dom.js';
import {percent} from './format.js';

// A line from the median to the largest value; `data` is [largest, position, median].
function reach(c) {
  return (params, api) => {
    const from = api.coord([api.value(2), api.value(1)]);
    const to = api.coord([api.value(0), api.value(1)]);
    const style = {stroke: c.text, lineWidth: 1.4, fill: 'none'};
    return {type: 'group', children: [{type: 'line', shape: {x1: from[0], y1: from[1], x2: to[0], y2: to[1]}, style},
      {type: 'line', shape: {x1: to[0], y1: to[1] - 4, x2: to[0], y2: to[1] + 4}, style}]};
  };
}

export function drawKnobs() {
  const knobs = readData('knobs');
  if (!knobs) {
    return;
  }
  const c = colors();
  const names = knobs.map((k) => k.knob);
  const left = Math.min(isNarrow() ? 140 : 260, 20 + 6.6 * Math.max(...names.map((name) => name.length)));
  const ratio = (value) => `${Math.round(100 * value)} %`;
  const rows = {type: 'category', inverse: true, data: names, axisTick: {show: false}};
  const describe = (k) => tip(k.knob, [
    k.settings > 0 ? `alone in ${k.settings} settings, in ${k.clear} of them clear of the noise` : 'never varied alone',
    k.settings > 0 ? `worth ${percent(k.median)} in the median, ${percent(k.most)} at most` : '',
    k.settings > 0 ? `fastest most often: ${k.best}` : '', `${percent(k.explained)} of the spread goes with it`]);
  draw('knobs', {
    ...common(c), legend: {show: false},
    tooltip: {...common(c).tooltip, trigger: 'axis', axisPointer: {type: 'shadow'}, formatter: (items) => describe(knobs[items[0].dataIndex])},
    grid: [{left, width: '38%', top: 30, bottom: 24}, {left: '66%', right: 24, top: 30, bottom: 24}],
    xAxis: [axis(c, {type: 'value', axisLabel: {formatter: ratio}}), axis(c, {type: 'value', gridIndex: 1, axisLabel: {formatter: ratio}})],
    yAxis: [axis(c, {...rows, axisLabel: {interval: 0, hideOverlap: false, width: left - 12, overflow: 'truncate'}, name: 'worth, alone', nameLocation: 'start', nameTextStyle: {align: 'left'}}),
      axis(c, {...rows, gridIndex: 1, axisLabel: {show: false}, name: 'of the spread', nameLocation: 'start', nameTextStyle: {align: 'left'}})],
    series: [
      {type: 'bar', name: 'worth', barMaxWidth: 14, data: knobs.map((k) => k.median), itemStyle: {color: c.blue}, emphasis: {disabled: true}},
      {type: 'custom', name: 'at most', renderItem: reach(c), encode: {x: [0, 2], y: 1}, silent: true, z: 3,
        data: knobs.map((k, i) => [k.most, i, k.median]).filter(([most]) => most > 0)},
      {type: 'bar', name: 'of the spread', xAxisIndex: 1, yAxisIndex: 1, barMaxWidth: 14, data: knobs.map((k) => k.explained),
        itemStyle: {color: c.orange, decal: hatch(1)}, emphasis: {disabled: true}},
    ],
  }, 66 + (forPrint() ? 15 : 22) * knobs.length);
}
