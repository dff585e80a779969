// Starts the report: theme, copy buttons, table, charts. Everything it draws is in the page already, as JSON.
import {forPrint, setPrinting} from './charts.js';
import {drawBisect, setUpBisect} from './bisect.js';
import {drawBudget, setUpBudget} from './budget.js';
import {drawHistory, setUpHistory} from './history.js';
import {drawLoss} from './loss.js';
import {drawMemory, setUpMemory} from './memory.js';
import {drawFront, drawSpace, setUpSpace} from './plan.js';
import {drawPrediction} from './prediction.js';
import {setUpTable} from './table.js';
import {drawTimeline, setUpTimeline} from './timeline.js';

const root = document.documentElement;
const darkPreferred = window.matchMedia('(prefers-color-scheme: dark)');

function drawAll() {
  drawHistory();
  drawMemory();
  drawBudget();
  drawTimeline();
  drawPrediction();
  drawLoss();
  drawBisect();
  drawFront();
  drawSpace();
}

const isDark = () => (root.dataset.theme ? root.dataset.theme === 'dark' : darkPreferred.matches);

function showTheme() {
  const button = document.getElementById('theme');
  button.textContent = isDark() ? 'Light' : 'Dark';
  button.setAttribute('aria-pressed', String(isDark()));
  button.setAttribute('aria-label', isDark() ? 'Switch to the light theme' : 'Switch to the dark theme');
}

function setUpTheme() {
  // #theme=dark opens the page in that theme: for links and for tests.
  const asked = /[#&]theme=(dark|light)\b/.exec(location.hash);
  if (asked) {
    root.dataset.theme = asked[1];
  }
  document.getElementById('theme').addEventListener('click', () => {
    root.dataset.theme = isDark() ? 'light' : 'dark';
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

function setUpCopy() {
  for (const button of document.querySelectorAll('button[data-copy]')) {
    button.addEventListener('click', async () => {
      const source = document.getElementById(button.dataset.copy);
      try {
        await navigator.clipboard.writeText(source.textContent);
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
setUpTheme();
setUpCopy();
setUpPrint();
setUpTable();
setUpHistory();
setUpMemory();
setUpBudget();
setUpTimeline();
setUpBisect();
setUpSpace();
drawAll();

let width = window.innerWidth;
window.addEventListener('resize', () => {
  if (window.innerWidth !== width && !forPrint()) {
    width = window.innerWidth;
    drawAll();
  }
});
