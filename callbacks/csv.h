#pragma once

#include <string>
#include <vector>

namespace halfgrad {

/// The cells as one line of a CSV file, newline included. A cell with a comma, a quote or a line break is put between
/// quotes, with its own quotes doubled (RFC 4180).
std::string csv_line(const std::vector<std::string>& cells);

}  // namespace halfgrad
