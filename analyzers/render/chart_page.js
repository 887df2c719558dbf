// Fills the figure of a flame chart from the data beside it, and keeps names, borders and details up to date.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("chart-data").textContent);
  const figure = JSON.parse(document.getElementById("chart-figure").textContent);
  const plot = document.getElementById("chart");
  const details = document.getElementById("details");
  const widthNs = BigInt(data.width_ns);
  const firstSlice = BigInt(data.first_slice);
  const originNs = BigInt(data.origin_ns);
  const firstNs = firstSlice * widthNs - originNs;
  const LETTER_PX = 6.7;
  const LEAST_LABEL_PX = 22;
  const MOST_LABELS = 1500;

  // plotly reads markup in its texts, and names hold < and &
  const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const short = (text, letters) => (text.length <= letters ? text : text.slice(0, Math.max(1, letters - 1)) + "…");

  // an exact decimal: 1234567n in ms is 1.234567
  function decimal(ns, unitNs) {
    const sign = ns < 0n ? "-" : "";
    const size = ns < 0n ? -ns : ns;
    const digits = String(unitNs).length - 1;
    const rest = String(size % unitNs).padStart(digits, "0").replace(/0+$/, "");
    return sign + String(size / unitNs) + (rest ? "." + rest : "");
  }
  const inMs = (ns) => decimal(ns, 1000000n) + " ms";
  const startOf = (slice) => firstNs + BigInt(slice) * widthNs;
  const xOf = (slice) => Number(startOf(slice)) / data.unit_ns;

  function sharesText(lane, slice) {
    const width = Number(data.width_ns);
    let captured = 0;
    const told = [];
    for (const state of data.states) {
      const taken = lane.shares[state.key][slice];
      captured += taken;
      if (taken) told.push(state.words + " " + percent(taken / width));
    }
    if (captured < width) told.push("not captured " + percent((width - captured) / width));
    return told.join(", ");
  }
  const percent = (share) => (share * 100).toFixed(share > 0.001 && share < 0.999 ? 1 : share > 0 && share < 1 ? 4 : 0) + " %";

  function sliceText(lane, slice) {
    const number = firstSlice + BigInt(slice);
    return "slice " + number + ": " + inMs(startOf(slice)) + ", absolute " + number * widthNs + " ns\n" +
      sharesText(lane, slice);
  }
  function cellText(lane, cell) {
    return lane.count[cell] + (lane.count[cell] === 1 ? " slice" : " slices") + " from " +
      inMs(startOf(lane.first[cell])) + ", " + inMs(BigInt(lane.count[cell]) * widthNs) + " long";
  }

  // ---- the grid of a lane: which cell lies at each depth and slice (-1: none)
  function gridOf(lane, rows) {
    const grid = Array.from({ length: rows }, () => new Int32Array(data.slices).fill(-1));
    for (let cell = 0; cell < lane.depth.length; cell++)
      grid[lane.depth[cell]].fill(cell, lane.first[cell], lane.first[cell] + lane.count[cell]);
    return grid;
  }

  function fillHeat(trace, lane) {
    const rows = trace.meta.rows;
    lane.grid = gridOf(lane, rows);
    const cells = lane.name.map((name, cell) =>
      "<b>" + plain(short(data.names[name], 160)) + "</b><br>" + cellText(lane, cell));
    const slices = lane.heat.map((_, slice) => plain(sliceText(lane, slice)).replace("\n", "<br>"));
    trace.x0 = xOf(0) + (xOf(1) - xOf(0)) / 2;
    trace.dx = xOf(1) - xOf(0);
    trace.y = Array.from({ length: rows }, (_, depth) => depth);
    trace.z = [];
    trace.text = [];
    trace.customdata = [];
    for (const row of lane.grid) {
      const z = new Array(data.slices).fill(null);
      const text = new Array(data.slices).fill("");
      row.forEach((cell, slice) => {
        if (cell >= 0) {
          z[slice] = lane.heat[slice];
          text[slice] = cells[cell];
        } else if (lane.heat[slice] === data.not_captured) {
          z[slice] = data.not_captured;
          text[slice] = "<b>not captured</b>";
        }
      });
      trace.z.push(z);
      trace.text.push(text);
      trace.customdata.push(slices);
    }
  }

  function fillShares(trace, shares, width, xAt) {
    const count = shares.cpu.length;
    const y = new Array(count);
    for (let at = 0; at < count; at++) {
      if (trace.meta.state !== "not_captured") y[at] = shares[trace.meta.state][at] / width;
      else y[at] = 1 - data.states.reduce((sum, state) => sum + shares[state.key][at], 0) / width;
    }
    trace.x = Array.from({ length: count + 1 }, (_, at) => xAt(at));
    trace.y = y.concat(y.slice(-1));
  }

  const overview = data.overview;
  const overviewX = (at) =>
    Number((BigInt(overview.first_bucket) + BigInt(at)) * BigInt(overview.width_ns) - originNs) / overview.unit_ns;
  for (const trace of figure.data) {
    const lane = data.lanes[trace.meta.lane];
    if (trace.meta.role === "heat") fillHeat(trace, lane);
    if (trace.meta.role === "shares") fillShares(trace, lane.shares, Number(data.width_ns), xOf);
    if (trace.meta.role === "overview")
      fillShares(trace, overview.shares, Number(overview.width_ns), overviewX);
  }
  const layout = figure.layout;
  const wholeRange = [xOf(0), xOf(data.slices)];
  Object.keys(layout).forEach((key) => {
    if (/^xaxis[0-9]/.test(key)) layout[key].range = wholeRange.slice();
  });
  layout.xaxis.range = [overviewX(0), overviewX(overview.shares.cpu.length)];
  const toOverview = data.unit_ns / overview.unit_ns;
  layout.shapes = [{
    type: "rect", xref: "x", yref: "y domain", y0: -0.06, y1: 1.06,
    x0: wholeRange[0] * toOverview, x1: wholeRange[1] * toOverview,
    line: { color: "black", width: 2 }, fillcolor: "rgba(0,0,0,0.08)",
  }];
  layout.annotations.forEach((annotation, at) => {
    annotation.text = plain(short(at === 0 ? overview.label : data.lanes[at - 1].title, 200));
  });

  // ---- names and borders of the cells that are wide enough at this zoom
  function visibleCells(lane, axis) {
    const [low, high] = axis.range;
    const pxPerX = axis._length / (high - low);
    const found = [];
    for (let cell = 0; cell < lane.depth.length; cell++) {
      const left = Math.max(low, xOf(lane.first[cell]));
      const right = Math.min(high, xOf(lane.first[cell] + lane.count[cell]));
      if (right > left) found.push({ cell, left, right, px: (right - left) * pxPerX });
    }
    return found;
  }

  function redraw() {
    const traces = [];
    const update = { x: [], y: [], text: [] };
    plot.data.forEach((trace, index) => {
      if (trace.meta.role !== "borders" && trace.meta.role !== "labels") return;
      const lane = data.lanes[trace.meta.lane];
      const cells = visibleCells(lane, plot._fullLayout["xaxis" + (trace.meta.lane + 2)]);
      const x = [], y = [], text = [];
      if (trace.meta.role === "borders") {
        for (const seen of cells.filter((one) => one.px >= 3)) {
          const depth = lane.depth[seen.cell];
          x.push(seen.left, seen.left, seen.right, seen.right, null);
          y.push(depth + 0.5, depth - 0.5, depth - 0.5, depth + 0.5, null);
        }
      } else if (trace.meta.row_px >= 12) {
        const wide = cells.filter((one) => one.px >= LEAST_LABEL_PX).sort((a, b) => b.px - a.px);
        for (const seen of wide.slice(0, MOST_LABELS)) {
          x.push(seen.left);
          y.push(lane.depth[seen.cell]);
          text.push("\u00a0" + plain(short(data.names[lane.name[seen.cell]], Math.floor((seen.px - 8) / LETTER_PX))));
        }
      }
      traces.push(index);
      update.x.push(x);
      update.y.push(y);
      update.text.push(text);
    });
    Plotly.restyle(plot, update, traces);
  }

  // ---- details: the whole stack and the exact numbers, as text to copy
  let isKept = false;
  const hint = details.textContent;
  function describe(point) {
    const meta = point.data.meta;
    const lane = data.lanes[meta.lane];
    const [depth, slice] = point.pointIndex || point.pointNumber;
    const cell = lane.grid[depth][slice];
    const lines = [lane.label, sliceText(lane, slice)];
    if (cell >= 0) lines.splice(1, 0, data.names[lane.name[cell]] + "  (" + lane.kind[cell] + ", " + cellText(lane, cell) + ")");
    const stack = lane.grid.map((row) => row[slice]).filter((one) => one >= 0).map((one) => data.names[lane.name[one]]);
    if (stack.length) lines.push("stack: " + stack.join(" > "));
    return lines.join("\n");
  }
  function rangeText(x) {
    const middle = x * overview.unit_ns;
    const half = Number(widthNs) * data.slices / 2;
    const from = Math.max(0, Math.round((middle - half) / 1000));
    return "to draw there: --from " + from + "us --to " + Math.max(from + 1, Math.round((middle + half) / 1000)) + "us";
  }

  const config = { displaylogo: false, responsive: true, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };
  Plotly.newPlot(plot, figure.data, layout, config).then(() => {
    redraw();
    plot.on("plotly_relayout", redraw);
    plot.on("plotly_hover", (event) => {
      if (!isKept && event.points[0].data.meta.role === "heat") details.textContent = describe(event.points[0]);
    });
    plot.on("plotly_click", (event) => {
      if (event.points[0].data.meta.role !== "heat") return;
      isKept = true;
      details.textContent = describe(event.points[0]);
      details.classList.add("kept");
    });
    document.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      isKept = false;
      details.classList.remove("kept");
      details.textContent = hint;
    });
    plot.addEventListener("click", (event) => {
      const axis = plot._fullLayout.xaxis, rows = plot._fullLayout.yaxis;
      const box = plot.getBoundingClientRect();
      const x = event.clientX - box.left - axis._offset, y = event.clientY - box.top - rows._offset;
      if (x >= 0 && x <= axis._length && y >= 0 && y <= rows._length) details.textContent = rangeText(axis.p2d(x));
    });
    document.body.classList.add("drawn");
  });
})();
