const detail = document.getElementById("detail");
let picked = null;
function show(cell) {
  if (picked) picked.classList.remove("picked");
  picked = cell;
  cell.classList.add("picked");
  detail.textContent = cell.title;
}
for (const event of ["mouseover", "click"]) {
  document.addEventListener(event, (e) => {
    const cell = e.target.closest("td[title]");
    if (cell) show(cell);
  });
}
