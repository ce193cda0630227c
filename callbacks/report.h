#pragma once

#include <string>

namespace halfgrad {

class Learner;

/// The last run as one self-contained HTML page: the epoch table, the curves of loss, learning rate and momentum, what
/// mixed precision did, and the model. Curves need gnuplot; without it the page says so.
std::string html_report(Learner& learn);

}  // namespace halfgrad
