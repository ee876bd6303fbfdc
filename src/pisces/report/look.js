"use strict";
// How figures look, in reports and on the live page: both have this file.
const LOOK = {
  narrow: 500, // pixels
  config: {
    responsive: true, displaylogo: false, showTips: false,
    logging: 0, // it warns of every bar coloured by a number
  },
  // What a dark page has instead of colours. Some are too dark for it; the sky's blue gives way to
  // the blue. A scale's far end is what has to be seen, so that it grows brighter there, not darker.
  onDark: {
    "#0072B2": "#3D9AD9", "#56B4E9": "#9BD4F5", "#882255": "#C4698F", "#332288": "#8F80DB",
    "#8C510A": "#C08A48",
    "#FDE725": "#355F8D", "#5EC962": "#238A8D", "#21918C": "#2FB47C", "#3B528B": "#8BD646",
    "#440154": "#FDE725",
  },
  // Figures say nothing of the colours of text and paper: they are the page's, as is its type.
  template({ ink, soft, grid, paper }) {
    const family = getComputedStyle(document.body).fontFamily;
    const axis = {
      gridcolor: grid, zerolinecolor: grid, automargin: true,
      ticklabeloverflow: "allow", // there is room for them: nobody need measure each
      title: { font: { color: soft, size: 12 }, standoff: 8 }, tickfont: { color: soft, size: 11 },
    };
    return { layout: {
      font: { family, size: 12, color: ink },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      xaxis: axis, yaxis: axis,
      hoverlabel: { bgcolor: paper, bordercolor: soft, font: { family, size: 12, color: ink } },
      legend: { font: { color: soft }, bgcolor: "rgba(0,0,0,0)" },
      modebar: { color: soft, activecolor: ink, bgcolor: "rgba(0,0,0,0)" },
    } };
  },
};
