// Frames, what members reconstruct and the films that they imagine.

function tile(kind, caption) {
  const made = make("div", { class: `tile ${kind}`, role: "img", "aria-label": caption });
  return { made, figure: make("figure", {}, made, make("figcaption", {}, caption)) };
}

function show(made, address) {
  made.classList.toggle("over", address === null);
  made.style.backgroundImage = address === null ? "" : `url(${address})`;
  made.style.backgroundSize = "contain";
  made.style.backgroundPosition = "center";
}

// One tile of a sheet with a row for each member.
function cut(run, made, image, step, member, place) {
  const columns = image.steps.length + 1;
  made.style.backgroundImage = `url(${image.sheets[step]})`;
  made.style.backgroundSize = `${100 * columns}% ${100 * run.members}%`;
  made.style.backgroundPosition = `${100 * place / (columns - 1)}% ${run.members > 1 ? 100 * member / (run.members - 1) : 0}%`;
}

function sawImages(run, target) {
  if (run.frames) {
    const picture = tile("large real", "not seen by the agent");
    target.append(picture.figure);
    page.panels.push((step) => show(picture.made, run.frames[Math.min(step, run.steps)]));
  }
  for (const image of run.images) {
    const real = tile("large real", `${image.name}: seen`);
    target.append(real.figure);
    const members = range(run.members).map((member) => tile("member", memberName(member)));
    target.append(make("div", { class: "images group" }, ...members.map(({ figure }) => figure)));
    page.panels.push((now) => {
      const step = within(run, now);
      show(real.made, image.frames[step]);
      members.forEach(({ made }, member) => cut(run, made, image, step, member, 0));
    });
  }
}

function strips(run, target) {
  for (const image of run.images) {
    const grid = make("div", { class: "strip", style: `grid-template-columns: auto repeat(${image.steps.length}, minmax(0, 92px))` });
    grid.append(make("span", {}, image.name), ...image.steps.map((ahead) => make("span", { class: "head" }, `+${ahead}`)));
    const tiles = [];
    for (const member of range(run.members)) {
      grid.append(make("span", {}, memberName(member)));
      image.steps.forEach((ahead, place) => {
        const { made } = tile("member", `${memberName(member)}, ${ahead} steps ahead`);
        grid.append(made);
        tiles.push((step) => cut(run, made, image, step, member, place + 1));
      });
    }
    grid.append(make("span", {}, "really"));
    for (const ahead of image.steps) {
      const { made } = tile("real", `what was seen ${ahead} steps later`);
      grid.append(made);
      tiles.push((step) => show(made, step + ahead <= run.steps ? image.frames[step + ahead] : null));
    }
    target.append(grid);
    page.panels.push((step) => tiles.forEach((draw) => draw(within(run, step))));
  }
}
