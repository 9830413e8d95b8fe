// The graph of the data flow is part of the document; here its boxes become links to the listing (list.js).
const sameValue = (row, [rank, step, scope, slot, phase, call, op]) => {
  const t = data.tensors[u32(row, 0)];
  return t[0] === rank && data.steps[u32(row, 4)] === step && data.scopes[t[1]] === scope && data.slots[t[2]] === slot &&
         data.phases[t[4]] === phase && t[5] === call && data.ops[t[3]] === op;
};
for (const box of document.querySelectorAll('[data-value]')) {
  box.addEventListener('click', () => {
    const value = JSON.parse(box.dataset.value);
    for (let row = 0; row < count; row++) {
      if (sameValue(row, value)) { showRow(row); return; }
    }
  });
}
// Commands are to be pasted.
for (const block of document.querySelectorAll('pre.commands')) {
  const button = document.createElement('button');
  button.type = 'button';
  button.className = 'screen copy';
  button.textContent = 'copy';
  button.addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(block.textContent);
    } catch (error) {  // the page was opened from a place that browsers do not trust
      getSelection().selectAllChildren(block);
      document.execCommand('copy');
    }
    button.textContent = 'copied';
    setTimeout(() => { button.textContent = 'copy'; }, 2000);
  });
  block.before(button);
}
