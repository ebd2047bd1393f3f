"use strict";
(() => {
  const NEAR = 48; // pixels from a pointer to the point that it means
  const read = (element) => JSON.parse(element.textContent);
  const add = (parent, name) => {
    const element = document.createElement("div");
    element.className = name;
    return parent.appendChild(element);
  };

  // What is folded is printed.
  addEventListener("beforeprint", () => {
    for (const part of document.querySelectorAll("details[data-print]")) part.open = true;
  });

  // Commands are copied.
  const copied = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch { // no permission, or a browser that grants files none
      const area = document.createElement("textarea");
      area.value = text;
      area.className = "offscreen";
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  };
  for (const button of document.querySelectorAll("button.copy")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      await copied(button.parentElement.querySelector("code").textContent);
      button.textContent = "Copied";
      button.focus();
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }

  // The architecture that is picked is shown in detail.
  const holder = document.querySelector("script.records");
  const held = holder && read(holder);
  const slot = (name) => document.querySelector(`.detail [data-slot="${name}"]`);
  const columns = (values, most) => values.map((value, place) => {
    const share = Math.floor((200 * value + most) / (2 * most));
    return share ? `M${place}.08 100v-${share}h.84v${share}z` : "";
  }).join("");
  const drawStrip = (record) => {
    const most = slot("width-box").closest(".strip").dataset.most.split(" ").map(Number);
    const layers = record.runs.flatMap(([count, ...sizes]) => Array(count).fill(sizes));
    const rows = [["width0", 0, 0], ["attention0", 1, 1], ["attention1", 2, 1], ["ffn0", 4, 2]];
    for (const [name, column, row] of rows) {
      slot(name).setAttribute("d", columns(layers.map((sizes) => sizes[column]), most[row]));
    }
    ["width", "attention", "ffn"].forEach((name, row) => {
      slot(`${name}-box`).setAttribute("viewBox", `0 0 ${layers.length} 100`);
      slot(name).textContent = record.sizes[row];
    });
  };
  const configured = (change) => typeof change === "string" ? change
    : held.config.map((line, place) => change[place] ?? line).join("\n");
  const show = (place) => {
    const record = held.records[place];
    slot("roles").textContent = record.roles;
    slot("words").textContent = record.words;
    record.values.forEach((value, row) => { slot(`value${row}`).textContent = value; });
    slot("command").textContent = held.before + record.choices.replaceAll("'", "'\"'\"'") + held.after;
    if (held.config.length) slot("config").textContent = configured(record.config);
    drawStrip(record);
  };

  // Points are pointed at, walked along with arrow keys, and picked.
  const steps = {
    ArrowRight: (at) => at + 1, ArrowUp: (at) => at + 1, ArrowLeft: (at) => at - 1, ArrowDown: (at) => at - 1,
    PageUp: (at) => at + 10, PageDown: (at) => at - 10, Home: () => 0, End: () => Infinity,
  };
  const link = (group) => {
    const points = read(group.querySelector("script.points"));
    if (!points.names.length) return null;
    const detailed = held && group.hasAttribute("data-detail");
    const readout = detailed ? null : add(group, "readout");
    if (readout) {
      readout.setAttribute("aria-live", "polite");
      readout.textContent = "Pick a point to see its values here.";
    }
    const lines = (place, plots) => [points, ...plots].flatMap(({columns = []}) =>
      columns.map(([name, values]) => `${name} ${values[place]}`.trim()));
    const views = [...group.querySelectorAll(".plot")].map((plot, number) => ({
      ...points.plots[number], plot, cursor: add(plot, "cursor"),
    }));
    const mark = (place) => {
      for (const view of views) {
        view.ring ??= add(view.cursor, "ring");
        view.ring.style.left = `${view.x[place] / 10}%`;
        view.ring.style.top = `${view.y[place]}px`;
        view.cursor.setAttribute("aria-valuenow", view.order.indexOf(place) + 1);
        view.cursor.setAttribute("aria-valuetext", [points.names[place], ...lines(place, [view])].join(", "));
      }
    };
    const pick = (place) => {
      mark(place);
      if (detailed) show(place);
      else readout.textContent = [points.names[place], ...lines(place, views)].join(" · ");
    };
    for (const view of views) {
      const {cursor, x, y} = view;
      const drawing = view.plot.querySelector("svg.xy");
      let current = null;
      let tip = null;
      view.order = points.names.map((_, place) => place).sort((a, b) => x[a] - x[b] || y[b] - y[a]);
      cursor.style.height = `${drawing.getAttribute("height")}px`;
      cursor.tabIndex = 0;
      for (const [name, value] of Object.entries({
        role: "slider", "aria-label": points.label, "aria-valuemin": 1, "aria-valuemax": x.length,
        "aria-valuenow": 1, "aria-valuetext": points.names[view.order[0]],
      })) cursor.setAttribute(name, value);
      const tell = (place) => {
        tip ??= add(cursor, "tip");
        tip.textContent = [points.names[place], ...lines(place, [view])].filter(Boolean).join("\n");
        const right = x[place] > 500;
        tip.style.left = right ? "" : `calc(${x[place] / 10}% + 14px)`;
        tip.style.right = right ? `calc(${100 - x[place] / 10}% + 14px)` : "";
        tip.style.top = `${y[place] - 12}px`;
      };
      const silence = () => { tip?.remove(); tip = null; };
      const nearest = (event) => {
        const box = cursor.getBoundingClientRect();
        let best = null;
        let least = NEAR ** 2;
        x.forEach((_, place) => {
          const across = box.left + x[place] * box.width / 1000 - event.clientX;
          const down = box.top + y[place] - event.clientY;
          const distance = across ** 2 + down ** 2;
          if (distance < least) [best, least] = [place, distance];
        });
        return best;
      };
      cursor.addEventListener("pointermove", (event) => {
        const place = nearest(event);
        if (place === null) silence();
        else tell(place);
      });
      cursor.addEventListener("pointerleave", silence);
      cursor.addEventListener("blur", silence);
      cursor.addEventListener("click", (event) => {
        const place = nearest(event);
        if (place === null) return;
        current = view.order.indexOf(place);
        pick(place);
      });
      cursor.addEventListener("keydown", (event) => {
        if (event.key === "Escape") silence();
        if (!(event.key in steps)) return;
        event.preventDefault();
        const start = current ?? (detailed ? view.order.indexOf(0) : -1);
        current = Math.max(0, Math.min(x.length - 1, steps[event.key](start)));
        pick(view.order[current]);
        tell(view.order[current]);
      });
    }
    if (detailed) mark(0);
    return mark;
  };
  const marks = new Map();
  for (const group of document.querySelectorAll(".linked")) marks.set(group, link(group));
  for (const button of document.querySelectorAll("button.show")) {
    button.addEventListener("click", () => {
      show(Number(button.dataset.record));
      marks.get(document.querySelector(".linked[data-detail]"))?.(Number(button.dataset.record));
      document.querySelector(".detail").scrollIntoView({block: "nearest"});
    });
  }
})();
