"use strict";

{
  const data = JSON.parse(document.getElementById("data").textContent);
  const charts = document.getElementById("charts-here"), timelines = document.getElementById("timelines-here");
  if (charts && data.charts) startCharts(charts, data.charts);
  if (timelines && data.timelines) startTimelines(timelines, data.timelines);
  document.documentElement.dataset.drawn = "yes";
}
