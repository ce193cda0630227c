#include "callbacks/report.h"

#include <fmt/format.h>

#include <numeric>

#include "callbacks/learner.h"
#include "callbacks/plot.h"

namespace halfgrad {

namespace {

std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string row(const std::vector<std::string>& cells, const char* tag) {
  std::string out = "<tr>";
  for (const std::string& cell : cells) out += fmt::format("<{0}>{1}</{0}>", tag, escaped(cell));
  return out + "</tr>\n";
}

std::string epoch_table(const Recorder& run) {
  std::string out = "<table>\n" + row(run.columns(), "th");
  for (std::size_t epoch = 0; epoch < run.epochs.size(); ++epoch) out += row(run.row(epoch), "td");
  return out + "</table>\n";
}

std::string curve(const char* title, const char* y_label, std::vector<Curve> curves) {
  for (Curve& c : curves) {
    c.x.resize(c.y.size());
    std::iota(c.x.begin(), c.x.end(), 0.0);
  }
  const auto svg = draw_svg({.title = title, .x_label = "iteration", .y_label = y_label, .curves = std::move(curves)});
  if (!svg)
    return fmt::format(
        "<p>{}: no curve, since there are no numbers or gnuplot is not installed (Debian: gnuplot-nox).</p>\n", title);
  return "<div>" + svg->substr(svg->find("<svg")) + "</div>\n";
}

}  // namespace

std::string html_report(Learner& learn) {
  const Recorder& run = learn.recorder();
  std::string out =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Training "
      "report</title>\n<style>body{font-family:sans-serif;"
      "max-width:60em;margin:2em auto;padding:0 1em}table{border-collapse:collapse}td,th{padding:.2em "
      ".8em;text-align:right;"
      "border-bottom:1px solid "
      "#ccc}pre{background:#f4f4f4;padding:1em;overflow:auto}</style></head><body>\n<h1>Training report</h1>\n";
  out += epoch_table(run);
  if (const MixedPrecision* precision = learn.mixed_precision()) {
    std::string scales;  // of each optimizer
    std::int64_t skipped = 0;
    for (std::size_t i = 0; i < learn.optimizers().size(); ++i) {
      scales += fmt::format("{}{}", i == 0 ? "" : " and ", precision->scaler(i).scale);
      skipped += precision->scaler(i).skipped;
    }
    out += fmt::format("<p>Mixed precision: {} loss scale {}, {} of {} steps skipped.</p>\n",
                       precision->scaler().dynamic ? "dynamic" : "static", scales, skipped, run.losses.size());
  } else {
    out += "<p>Single precision.</p>\n";
  }
  out += curve("Training loss", "loss", {{"loss", {}, run.losses}, {"smoothed", {}, run.smoothed_losses()}});
  out += curve("Learning rate", "learning rate", {{"learning rate", {}, run.lrs}});
  out += curve("Momentum", "momentum", {{"momentum", {}, run.moms}});
  out += "<h2>Model</h2>\n<pre>" + escaped(learn.model().str()) + "</pre>\n</body></html>\n";
  return out;
}

}  // namespace halfgrad
