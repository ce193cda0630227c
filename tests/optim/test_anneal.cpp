#include <doctest/doctest.h>

#include <vector>

#include "engine/error.h"
#include "optim/anneal.h"

using namespace halfgrad::optim;

TEST_CASE("every curve begins at start, and all but the constant one end at end") {
  for (const Anneal& anneal : std::vector<Anneal>{anneal_linear, anneal_cos, anneal_exp, anneal_poly(2)}) {
    CHECK(anneal(1, 4, 0) == doctest::Approx(1));
    CHECK(anneal(1, 4, 1) == doctest::Approx(4));
    CHECK(anneal(4, 1, 0) == doctest::Approx(4));
    CHECK(anneal(4, 1, 1) == doctest::Approx(1));
  }
  CHECK(anneal_no(1, 4, 0) == 1);
  CHECK(anneal_no(1, 4, 1) == 1);
}

TEST_CASE("values in between") {
  CHECK(anneal_linear(1, 5, 0.25) == 2);
  CHECK(anneal_cos(0, 1, 0.5) == doctest::Approx(0.5));
  CHECK(anneal_cos(1, 0, 1.0 / 3) == doctest::Approx(0.75));  // (1 + cos 60 degrees) / 2
  CHECK(anneal_exp(1, 16, 0.25) == doctest::Approx(2));
  CHECK(anneal_exp(-1, -100, 0.5) == doctest::Approx(-10));
  CHECK(anneal_poly(2)(0, 1, 0.5) == doctest::Approx(0.75));
  CHECK(anneal_poly(1)(3, 7, 0.5) == doctest::Approx(5));
}

TEST_CASE("no curve of equal ratios goes through zero") {
  CHECK_THROWS_AS(anneal_exp(0, 1, 0.5), halfgrad::Error);
  CHECK_THROWS_AS(anneal_exp(-1, 1, 0.5), halfgrad::Error);
}
