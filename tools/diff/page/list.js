// The listing of all values, of which only the rows in sight exist, and the plot of the chosen one over the steps.
const ROW_HEIGHT = 24;
let shown = [], selected = -1;
const spacer = document.createElement('div');
$('list').append(spacer);
function refilter() {
  const words = $('filter').value.toLowerCase().split(/\s+/).filter(Boolean), least = +$('least').value;
  const fits = new Map();
  shown = [];
  for (let i = 0; i < count; i++) {
    if (classOf(i) < least) continue;
    const id = u32(i, 0);
    if (!fits.has(id)) {
      const name = nameOf(data.tensors[id]).toLowerCase();
      fits.set(id, words.every((word) => name.includes(word)));
    }
    if (fits.get(id)) shown.push(i);
  }
  selected = shown.length ? 0 : -1;
  spacer.style.height = shown.length * ROW_HEIGHT + 'px';
  $('list').scrollTop = 0;
  $('matches').textContent = `${shown.length.toLocaleString('en')} of ${count.toLocaleString('en')} values` +
      (data.left_out ? `; ${data.left_out.toLocaleString('en')} more are not in this page (the first ${data.most.toLocaleString('en')} that agree and that do not are): see --csv` : '');
  draw();
  plot();
}
function draw() {
  const list = $('list'), first = Math.max(0, Math.floor(list.scrollTop / ROW_HEIGHT) - 5);
  const end = Math.min(shown.length, first + Math.ceil(list.clientHeight / ROW_HEIGHT) + 10);
  for (const old of list.querySelectorAll('.row')) old.remove();
  for (let k = first; k < end; k++) {
    const row = rowOf(shown[k]), line = document.createElement('div');
    line.className = 'row';
    line.id = 'row' + k;
    line.setAttribute('role', 'option');
    line.setAttribute('aria-selected', k === selected);
    line.style.top = k * ROW_HEIGHT + 'px';
    line.style.borderLeft = '6px solid ' + COLORS[row.verdict];
    line.textContent = `step ${row.step ?? '?'}  ${data.classes[row.verdict].padEnd(12)} ${nameOf(row.tensor)}  ` +
        (Number.isFinite(row.meanDifference) ? `mean ${number(row.mean)} | ${number(row.mean + row.meanDifference)}` : '');
    line.addEventListener('click', () => select(k));
    list.append(line);
  }
  list.setAttribute('aria-activedescendant', 'row' + selected);
}
function select(k) {
  selected = Math.max(0, Math.min(shown.length - 1, k));
  const list = $('list'), top = selected * ROW_HEIGHT;
  if (top < list.scrollTop) list.scrollTop = top;
  if (top + ROW_HEIGHT > list.scrollTop + list.clientHeight) list.scrollTop = top + ROW_HEIGHT - list.clientHeight;
  draw();
  plot();
}
$('list').addEventListener('keydown', (event) => {
  const page = Math.floor($('list').clientHeight / ROW_HEIGHT);
  const move = {ArrowUp: -1, ArrowDown: 1, PageUp: -page, PageDown: page, Home: -shown.length, End: shown.length}[event.key];
  if (move === undefined) return;
  event.preventDefault();
  if (shown.length) select(selected + move);
});
let pending = false;
$('list').addEventListener('scroll', () => {
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => { pending = false; draw(); });
});
for (const id of ['filter', 'least', 'field']) $(id).addEventListener('input', id === 'field' ? plot : refilter);

// One tensor over the steps, with what was allowed.
function plot() {
  const figure = $('tensor');
  if (selected < 0) { figure.textContent = ''; return; }
  const id = u32(shown[selected], 0), field = $('field').value, points = [];
  for (let i = 0; i < count; i++) {
    if (u32(i, 0) !== id) continue;
    const row = rowOf(i), n = row.tensor[7];
    const std = (mean, l2) => Math.sqrt(Math.max(0, l2 * l2 / n - mean * mean));
    const both = {mean: [row.mean, row.mean + row.meanDifference], l2: [row.l2, row.l2 + row.l2Difference],
                  std: [std(row.mean, row.l2), std(row.mean + row.meanDifference, row.l2 + row.l2Difference)]}[field];
    points.push({x: row.step ?? 0, base: both[0], cand: both[1], band: row.field === {mean: 'mean', l2: 'norm'}[field] ? row.tolerance : NaN});
  }
  points.sort((a, b) => a.x - b.x);
  chart(figure, `${field} of ${nameOf(data.tensors[id])}, ${data.dtypes[data.tensors[id][6]]}`, points);
}
refilter();
// Shows a value among all others.
function showRow(row) {
  $('filter').value = '';
  $('least').value = '0';
  refilter();
  $('list').scrollTop = (row - 3) * ROW_HEIGHT;
  select(shown.indexOf(row));
  $('list').scrollIntoView({block: 'center'});
  $('list').focus({preventScroll: true});
}
// Opens where the runs part, with a few values before it.
const diverging = shown.findIndex((i) => isBad(classOf(i)));
const parted = diverging >= 0 ? diverging : shown.findIndex((i) => classOf(i) > 0);
if (parted > 0) {
  $('list').scrollTop = (parted - 3) * ROW_HEIGHT;
  select(parted);
}
document.documentElement.dataset.ready = count;
