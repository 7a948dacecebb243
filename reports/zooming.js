// Timelines that zoom: by wheel with Ctrl or once chosen, by two fingers, by keys and by buttons; dragged while zoomed.
const [MOST, FACTOR, STEP_PX] = [16, 1.5, 60];

for (const figure of document.querySelectorAll("figure.timeline")) {
  const picture = figure.querySelector("svg");
  const stage = document.createElement("div");
  picture.replaceWith(stage);
  stage.append(picture);
  stage.className = "stage";
  stage.tabIndex = 0;
  stage.role = "group";
  stage.ariaLabel = "Timeline: + and − zoom, arrows move what is zoomed, 0 shows all";
  const zoom = Panzoom(picture, {
    minScale: 1, maxScale: MOST, step: 0.6, contain: "outside", panOnlyWhenZoomed: true, cursor: "default",
  });

  const by = (factor) => zoom.zoom(zoom.getScale() * factor, { animate: false });
  const move = (x, y) => zoom.pan(x * STEP_PX / zoom.getScale(), y * STEP_PX / zoom.getScale(), { relative: true });
  const all = () => zoom.reset({ animate: false });
  const keys = {
    "+": () => by(FACTOR), "=": () => by(FACTOR), "-": () => by(1 / FACTOR), 0: all,
    ArrowLeft: () => move(1, 0), ArrowRight: () => move(-1, 0), ArrowUp: () => move(0, 1), ArrowDown: () => move(0, -1),
  };
  stage.addEventListener("keydown", (event) => {
    const whole = zoom.getScale() === 1;
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey || (whole && event.key.startsWith("Arrow"))) return;
    event.preventDefault();
    keys[event.key]();
  });
  // The page scrolls under a wheel that passes, and where there is nothing left to zoom out of.
  stage.addEventListener("wheel", (event) => {
    const chosen = event.ctrlKey || document.activeElement === stage;
    if (chosen && !(zoom.getScale() === 1 && event.deltaY > 0)) zoom.zoomWithWheel(event);
  }, { passive: false });
  stage.addEventListener("pointerdown", () => stage.focus({ preventScroll: true }), { capture: true });

  const tools = document.createElement("div");
  tools.className = "zoom";
  const scale = document.createElement("output");
  for (const [sign, words, act] of [["+", "Zoom in", keys["+"]], ["−", "Zoom out", keys["-"]], ["All", "Show all", all]]) {
    const button = document.createElement("button");
    [button.type, button.textContent, button.title, button.ariaLabel] = ["button", sign, words, words];
    button.addEventListener("click", act);
    tools.append(button);
  }
  tools.append(scale);
  stage.after(tools);
  const told = () => {
    const factor = zoom.getScale();
    scale.textContent = `${factor.toFixed(1)}×`;
    stage.classList.toggle("zoomed", factor > 1);
    picture.style.touchAction = stage.style.touchAction = factor > 1 ? "none" : "pan-y";  // else a finger scrolls the page
  };
  picture.addEventListener("panzoomchange", told);
  told();
}
