// Starts the report: theme, copy buttons, table, charts. Everything it draws is in the page already, as JSON.
import {forPrint, setPrinting} from './charts.js';
import {drawBisect, setUpBisect} from './bisect.js';
import {drawBudget, setUpBudget} from './budget.js';
import {setUpCompare} from './compare.js';
import {drawHistory, setUpHistory} from './history.js';
import {drawKnobs} from './knobs.js';
import {drawLoss} from './loss.js';
import {drawMemory, setUpMemory} from './memory.js';
import {drawFront, drawSpace, setUpSpace} from './plan.js';
import {drawPareto} from './pareto.js';
import {drawPrediction} from './prediction.js';
import {drawRoofline} from './roofline.js';
import {choose, chosen, namedPlace, setUpState} from './state.js';
import {setUpTable, showTrial} from './table.js';
import {drawTimeline, setUpTimeline} from './timeline.js';

const root = document.documentElement;
const darkPreferred = window.matchMedia('(prefers-color-scheme: dark)');

// In the order of the page.
const draws = [drawHistory, drawPareto, drawKnobs, drawMemory, drawBudget, drawRoofline, drawTimeline, drawPrediction, drawLoss, drawBisect, drawFront, drawSpace];
let waiting = [];

function drawAll() {
  waiting = [];
  draws.forEach((draw) => draw());
}

// One after the other, so that the page can be read and used meanwhile.
function drawSoon() {
  waiting = [...draws];
  const next = () => {
    const draw = waiting.shift();
    if (draw) {
      draw();
      setTimeout(next);
    }
  };
  requestAnimationFrame(() => setTimeout(next));
}

const isDark = () => (root.dataset.theme ? root.dataset.theme === 'dark' : darkPreferred.matches);

function showTheme() {
  const button = document.getElementById('theme');
  button.textContent = isDark() ? 'Light' : 'Dark';
  button.setAttribute('aria-pressed', String(isDark()));
  button.setAttribute('aria-label', isDark() ? 'Switch to the light theme' : 'Switch to the dark theme');
}

function setUpTheme() {
  // #theme=dark opens the page in that theme.
  if (['dark', 'light'].includes(chosen('theme'))) {
    root.dataset.theme = chosen('theme');
  }
  document.getElementById('theme').addEventListener('click', () => {
    root.dataset.theme = isDark() ? 'light' : 'dark';
    choose('theme', root.dataset.theme);
    showTheme();
    drawAll();
  });
  darkPreferred.addEventListener('change', () => {
    if (!forPrint()) {
      showTheme();
      drawAll();
    }
  });
  showTheme();
}

// What a terminal would obey, or would show otherwise than it runs, is never copied: control characters but line ends and
// tabs, and marks that reorder or hide text.
const copied = (text) => text.replace(/\r\n?/g, '\n')
  .replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufffd]/g, '');

function setUpCopy() {
  for (const button of document.querySelectorAll('button[data-copy]')) {
    button.addEventListener('click', async () => {
      const source = document.getElementById(button.dataset.copy);
      try {
        await navigator.clipboard.writeText(copied(source.textContent));
        button.textContent = 'Copied';
      } catch {
        // Pages from a file may not write to the clipboard: select the text, so that one key copies it.
        const range = document.createRange();
        range.selectNodeContents(source);
        getSelection().removeAllRanges();
        getSelection().addRange(range);
        button.textContent = 'Selected';
      }
      setTimeout(() => { button.textContent = 'Copy'; }, 2000);
    });
  }
}

// On paper: the colours of the light theme, charts as wide as the paper. What is folded stays folded (style.css).
function setUpPrint() {
  let theme;
  window.addEventListener('beforeprint', () => {
    if (forPrint()) {
      return;
    }
    theme = root.dataset.theme;
    root.dataset.theme = 'light';
    setPrinting(true);
    drawAll();
  });
  window.addEventListener('afterprint', () => {
    if (!forPrint()) {
      return;
    }
    if (theme) {
      root.dataset.theme = theme;
    } else {
      delete root.dataset.theme;
    }
    setPrinting(false);
    drawAll();
  });
}

root.classList.add('js');
setUpState(showTrial);
setUpTheme();
setUpCopy();
setUpPrint();
setUpTable();
setUpCompare();
setUpHistory();
setUpMemory();
setUpBudget();
setUpTimeline();
setUpBisect();
setUpSpace();
drawSoon();
if (namedPlace()) {
  document.getElementById(namedPlace())?.scrollIntoView();
}
showTrial(namedPlace() || location.hash.slice(1));

let width = window.innerWidth;
window.addEventListener('resize', () => {
  if (window.innerWidth !== width && !forPrint()) {
    width = window.innerWidth;
    drawAll();
  }
});
