#include <doctest/doctest.h>

#include <cmath>

#include "callbacks/learner.h"
#include "callbacks/plot.h"
#include "callbacks/report.h"
#include "data/synthetic.h"
#include "gnuplot.h"
#include "nn/nn.h"
#include "optim/sgd.h"

using namespace halfgrad;
using namespace halfgrad::test;

namespace {

std::string report_of(bool fp16) {
  manual_seed(1);
  auto model = nn::Sequential(nn::Linear(4, 8), nn::ReLU(), nn::Linear(8, 3));
  Learner learn(data::blobs({.n = 100, .features = 4, .classes = 3, .seed = 1, .batch_size = 20}), model,
                nn::cross_entropy, {.opt = optim::sgd({.lr = 0.1}), .metrics = {accuracy}, .silent = true});
  if (fp16) learn.to_fp16();
  learn.fit_one_cycle(2, 0.1);
  return html_report(learn);
}

}  // namespace

TEST_CASE("a report holds the epoch table, the precision and the model") {
  const std::string plain = report_of(false), mixed = report_of(true);
  for (const std::string& html : {plain, mixed}) {
    CHECK(html.find("<th>accuracy</th>") != std::string::npos);
    CHECK(html.find("<td>1</td>") != std::string::npos);
    CHECK(html.find("Linear(4, 8") != std::string::npos);
    CHECK(html.find("</html>") != std::string::npos);
  }
  CHECK(plain.find("Single precision") != std::string::npos);
  CHECK(mixed.find("dynamic loss scale 65536, 0 of 8 steps skipped") != std::string::npos);
}

TEST_CASE("without gnuplot a report says so instead of showing curves") {
  WithoutGnuplot guard;
  CHECK(!has_gnuplot());
  const std::string html = report_of(false);
  CHECK(html.find("gnuplot is not installed") != std::string::npos);
  CHECK(html.find("<svg") == std::string::npos);
}

TEST_CASE("curves are drawn by gnuplot, with gaps and any text") {
  if (!has_gnuplot()) {
    MESSAGE("gnuplot is not installed: nothing to test");
    return;
  }
  const auto svg = draw_svg({.title = "it's 100% \"safe\" $x `id`",
                             .x_label = "a_b^c",
                             .y_label = "y",
                             .curves = {{"one", {0, 1, 2, 3}, {1, std::nan(""), 3, 4}}, {"two", {0, 1}, {5, 6}}},
                             .log_y = true});
  REQUIRE(svg.has_value());
  CHECK(svg->find("<svg") != std::string::npos);
  CHECK(svg->find("a_b^c") != std::string::npos);
  CHECK(svg->find("`id`") != std::string::npos);
  CHECK_THROWS_AS(draw_svg({.curves = {{"bad", {0, 1}, {1}}}}), Error);
  CHECK(report_of(true).find("<svg") != std::string::npos);
}
