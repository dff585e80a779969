// ECharts with only the parts that the report uses, and what all charts share: colours of the theme, axes, accessibility.
import * as echarts from 'echarts/core';
import {BarChart, CustomChart, LineChart, ScatterChart} from 'echarts/charts';
import {AriaComponent, DataZoomComponent, GridComponent, LegendComponent, MarkLineComponent, TooltipComponent} from 'echarts/components';
import {SVGRenderer} from 'echarts/renderers';

echarts.use([BarChart, CustomChart, LineChart, ScatterChart, AriaComponent, DataZoomComponent, GridComponent,
  LegendComponent, MarkLineComponent, TooltipComponent, SVGRenderer]);

const charts = new Map();

/** The theme's colours as the style sheet has them now. */
export function colors() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(`--${name}`).trim();
  return {
    page: read('page'), text: read('text'), soft: read('soft'), line: read('line'), grid: read('grid'),
    accent: read('accent'), blue: read('c-blue'), orange: read('c-orange'), green: read('c-green'), red: read('c-red'),
    pink: read('c-pink'), sky: read('c-sky'), yellow: read('c-yellow'), black: read('c-black'),
  };
}

/** Pixels that a chart on paper is drawn in; the style sheet then fits it to the page, whatever its size. */
const printWidth = 880;
let isPrinting = false;

/** From now on charts are drawn for paper, or for the screen again. */
export function setPrinting(on) {
  isPrinting = on;
}
export const forPrint = () => isPrinting;

/** True on a narrow screen, where charts drop what does not fit. */
export const isNarrow = () => !isPrinting && window.innerWidth < 720;

/** Pixels that the chart NAME has from left to right. */
export const widthOf = (name) => (isPrinting ? printWidth : document.getElementById(`chart-${name}`).clientWidth);

/** The hatches that tell parts apart without colour, in the order they are given out; the first is plain. */
const hatches = [
  {symbol: 'none'},
  {symbol: 'rect', dashArrayX: [1, 0], dashArrayY: [2, 5], rotation: -Math.PI / 4, symbolSize: 1},
  {symbol: 'circle', dashArrayX: [[4, 4], [0, 4, 4, 0]], dashArrayY: [4, 0], symbolSize: 0.7},
  {symbol: 'rect', dashArrayX: [1, 0], dashArrayY: [2, 5], rotation: Math.PI / 4, symbolSize: 1},
  {symbol: 'rect', dashArrayX: [1, 0], dashArrayY: [1, 5], rotation: 0, symbolSize: 1},
  {symbol: 'rect', dashArrayX: [1, 0], dashArrayY: [1, 5], rotation: Math.PI / 2, symbolSize: 1},
  {symbol: 'triangle', dashArrayX: [[6, 6], [0, 6, 6, 0]], dashArrayY: [6, 0], symbolSize: 0.7},
];
export const hatch = (index) => ({color: 'rgba(0,0,0,0.28)', ...hatches[index % hatches.length]});

/** Option parts that are the same everywhere. */
export function common(c) {
  return {
    animation: false,
    textStyle: {fontFamily: 'system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif', color: c.text},
    legend: {type: 'plain', top: 0, left: 0, itemWidth: 14, itemHeight: 10, itemGap: 14, textStyle: {color: c.text, fontSize: 12},
      inactiveColor: c.line},
    tooltip: {confine: true, backgroundColor: c.page, borderColor: c.line, textStyle: {color: c.text, fontSize: 12.5},
      padding: [6, 10], transitionDuration: 0},
  };
}

export function axis(c, more = {}) {
  const {axisLabel, nameTextStyle, ...rest} = more;
  return {
    axisLine: {lineStyle: {color: c.line}}, axisTick: {lineStyle: {color: c.line}},
    splitLine: {lineStyle: {color: c.grid}}, nameTextStyle: {color: c.soft, fontSize: 12, ...nameTextStyle},
    axisLabel: {color: c.soft, fontSize: 12, hideOverlap: true, ...axisLabel}, ...rest,
  };
}

/** Draws into `#chart-NAME`; `height` in pixels. Drawing again replaces everything. */
export function draw(name, option, height) {
  const place = document.getElementById(`chart-${name}`);
  if (!place) {
    return null;
  }
  place.style.height = `${height}px`;
  charts.get(name)?.dispose();
  const chart = echarts.init(place, null, {renderer: 'svg', ...(isPrinting ? {width: printWidth, height} : {})});
  chart.setOption(option);
  if (isPrinting) {
    place.querySelector('svg')?.setAttribute('viewBox', `0 0 ${printWidth} ${height}`);
  }
  charts.set(name, chart);
  describe(name, place);
  return chart;
}

// Name and description inside the picture too, for readers that look at the svg alone.
function describe(name, place) {
  const svg = place.querySelector('svg');
  if (!svg) {
    return;
  }
  svg.setAttribute('role', 'img');
  for (const [tag, id] of [['desc', `desc-${name}`], ['title', `title-${name}`]]) {
    const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
    element.textContent = document.getElementById(id)?.textContent ?? name;
    svg.prepend(element);
  }
}
