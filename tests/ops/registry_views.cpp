#include "tests/ops/registry.h"

namespace halfgrad::testing {

namespace {

// A view or copy: element `index` of the result is element from(index) of x.
using From = std::function<Shape(const Shape& index)>;

Oracle1 moved(const Shape& shape, const From& from) {
  return [=](const Arrays& x) {
    Array y(shape, x[0].dtype);
    for (const Shape& index : oracle::indices(shape)) y[index] = oracle::between_nodes(x[0][from(index)]);
    return y;
  };
}

// The same elements in the same order.
Oracle1 reshaped(const Shape& shape) {
  return [shape](const Arrays& x) { return Array(shape, x[0].dtype, x[0].values); };
}

Entry& movement(std::vector<Entry>& entries, const char* name) {
  return make_entry(entries, name, Derivatives::any, Accuracy::rounded_once);
}

// Adds a case for floats and the same for integers.
void add(Entry& entry, const std::string& name, const Shape& shape, const std::function<Tensor(const Tensor&)>& f,
         const Oracle1& oracle, bool layouts = true) {
  const Op1 op = [f](const Tensors& x) { return f(x[0]); };
  entry.add(name, {uniform(shape)}, op, oracle).layouts = layouts;
  Case& whole = entry.add(name + ", integers", {integers(shape, -9, 9)}, op, oracle);
  whole.dtypes.clear();
  whole.layouts = layouts;
}

void register_reshapes(std::vector<Entry>& entries) {
  Entry& view = movement(entries, "view");
  const bool row_major = false;  // a view of strided memory needs a copy, or is it an Error
  add(
      view, "merged", {2, 3, 4},
      [](const Tensor& x) {
        return x.view({6, 4});
      },
      reshaped({6, 4}), row_major);
  add(
      view, "one size inferred", {2, 3, 4},
      [](const Tensor& x) {
        return x.view({4, -1, 2});
      },
      reshaped({4, 3, 2}), row_major);
  add(
      view, "empty", {0, 3},
      [](const Tensor& x) {
        return x.view({3, 0});
      },
      reshaped({3, 0}), row_major);
  add(
      view, "strided", {3, 4},
      [](const Tensor& x) {
        return x.transpose(0, 1).view({2, 2, 3});
      },
      moved({2, 2, 3},
            [](const Shape& i) {
              return Shape{i[2], 2 * i[0] + i[1]};
            }),
      row_major);
  view.error("another number of elements", [] { ones({2, 3}).view({4}); });
  view.error("two sizes to infer", [] { ones({2, 3}).view({-1, -1}); });
  view.error("memory that needs a copy", [] { ones({2, 3}).t().view({6}); });

  Entry& reshape = movement(entries, "reshape");
  add(
      reshape, "any layout", {2, 3, 4, 5},
      [](const Tensor& x) {
        return x.reshape({4, -1, 3});
      },
      reshaped({4, 10, 3}));
  add(
      reshape, "small", {3, 4},
      [](const Tensor& x) {
        return x.reshape({2, 6});
      },
      reshaped({2, 6}));
  add(
      reshape, "to a scalar", {1, 1}, [](const Tensor& x) { return x.reshape({}); }, reshaped({}));
  reshape.error("another number of elements", [] { ones({2, 3}).reshape({5, -1}); });

  Entry& flatten = movement(entries, "flatten");
  add(
      flatten, "everything", {2, 3, 4}, [](const Tensor& x) { return x.flatten(); }, reshaped({24}));
  add(
      flatten, "the last two", {2, 3, 4}, [](const Tensor& x) { return x.flatten(1); }, reshaped({2, 12}));
  add(
      flatten, "a scalar", {}, [](const Tensor& x) { return x.flatten(); }, reshaped({1}));
  flatten.error("backwards", [] { ones({2, 3}).flatten(1, 0); });
  flatten.error("a dimension that is not there", [] { ones({2, 3}).flatten(2); });

  Entry& squeeze = movement(entries, "squeeze");
  add(
      squeeze, "all", {1, 3, 1, 2}, [](const Tensor& x) { return x.squeeze(); }, reshaped({3, 2}));
  add(
      squeeze, "one", {1, 3, 1, 2}, [](const Tensor& x) { return x.squeeze(-2); }, reshaped({1, 3, 2}));
  add(
      squeeze, "none", {3, 2}, [](const Tensor& x) { return x.squeeze(0); }, reshaped({3, 2}));
  squeeze.error("a dimension that is not there", [] { ones({2, 3}).squeeze(2); });

  Entry& unsqueeze = movement(entries, "unsqueeze");
  add(
      unsqueeze, "in front", {3, 2}, [](const Tensor& x) { return x.unsqueeze(0); }, reshaped({1, 3, 2}));
  add(
      unsqueeze, "at the end", {3, 2}, [](const Tensor& x) { return x.unsqueeze(-1); }, reshaped({3, 2, 1}));
  add(
      unsqueeze, "a scalar", {}, [](const Tensor& x) { return x.unsqueeze(0); }, reshaped({1}));
  unsqueeze.error("too far", [] { ones({2, 3}).unsqueeze(3); });
}

void register_permutations(std::vector<Entry>& entries) {
  Entry& permute = movement(entries, "permute");
  add(
      permute, "cyclic", {2, 3, 4},
      [](const Tensor& x) {
        return x.permute({2, 0, -2});
      },
      moved({4, 2, 3}, [](const Shape& i) {
        return Shape{i[1], i[2], i[0]};
      }));
  add(
      permute, "empty", {0, 3},
      [](const Tensor& x) {
        return x.permute({1, 0});
      },
      moved({3, 0}, [](const Shape& i) { return i; }));
  permute.error("too few dimensions", [] { ones({2, 3}).permute({0}); });
  permute.error("one twice", [] { ones({2, 3}).permute({0, 0}); });
  permute.error("one that is not there", [] { ones({2, 3}).permute({0, 2}); });

  Entry& transpose = movement(entries, "transpose");
  add(
      transpose, "outer and inner", {2, 3, 4}, [](const Tensor& x) { return x.transpose(0, -1); },
      moved({4, 3, 2}, [](const Shape& i) {
        return Shape{i[2], i[1], i[0]};
      }));
  transpose.error("a dimension that is not there", [] { ones({2, 3}).transpose(0, 2); });

  Entry& t = movement(entries, "t");
  add(
      t, "matrix", {3, 5}, [](const Tensor& x) { return x.t(); }, moved({5, 3}, [](const Shape& i) {
        return Shape{i[1], i[0]};
      }));
  add(
      t, "vector", {3}, [](const Tensor& x) { return x.t(); }, reshaped({3}));
  t.error("rank 3", [] { ones({2, 3, 4}).t(); });
}

void register_slices(std::vector<Entry>& entries) {
  Entry& slice = movement(entries, "slice");
  add(
      slice, "inside", {4, 6}, [](const Tensor& x) { return x.slice(1, 1, 5); }, moved({4, 4}, [](const Shape& i) {
        return Shape{i[0], i[1] + 1};
      }));
  add(
      slice, "with a step", {7, 3}, [](const Tensor& x) { return x.slice(0, 1, -1, 2); },
      moved({3, 3}, [](const Shape& i) {
        return Shape{2 * i[0] + 1, i[1]};
      }));
  add(
      slice, "bounds out of range", {4}, [](const Tensor& x) { return x.slice(0, -9, 99); }, reshaped({4}));
  add(
      slice, "nothing", {4, 2}, [](const Tensor& x) { return x.slice(0, 3, 1); },
      moved({0, 2}, [](const Shape& i) { return i; }));
  slice.error("a backward step", [] { ones({3}).slice(0, 0, 3, -1); });
  slice.error("a scalar", [] { ones({}).slice(0, 0); });
  slice.error("a dimension that is not there", [] { ones({3}).slice(1, 0); });

  Entry& narrow = movement(entries, "narrow");
  add(
      narrow, "inside", {2, 6}, [](const Tensor& x) { return x.narrow(-1, 2, 3); }, moved({2, 3}, [](const Shape& i) {
        return Shape{i[0], i[1] + 2};
      }));
  add(
      narrow, "from the end", {5}, [](const Tensor& x) { return x.narrow(0, -2, 2); },
      moved({2}, [](const Shape& i) { return Shape{i[0] + 3}; }));
  narrow.error("too long", [] { ones({3}).narrow(0, 2, 2); });
  narrow.error("a negative length", [] { ones({3}).narrow(0, 2, -1); });

  Entry& select = movement(entries, "select");
  add(
      select, "a row", {4, 3}, [](const Tensor& x) { return x.select(0, 2); }, moved({3}, [](const Shape& i) {
        return Shape{2, i[0]};
      }));
  add(
      select, "from the end", {2, 3, 4}, [](const Tensor& x) { return x.select(1, -1); },
      moved({2, 4}, [](const Shape& i) {
        return Shape{i[0], 2, i[1]};
      }));
  add(
      select, "by brackets", {4}, [](const Tensor& x) { return x[1]; },
      moved({}, [](const Shape&) { return Shape{1}; }));
  select.error("out of range", [] { ones({3}).select(0, 3); });
  select.error("a scalar", [] { ones({}).select(0, 0); });

  Entry& expand = movement(entries, "expand");
  add(
      expand, "a size of 1", {3, 1},
      [](const Tensor& x) {
        return x.expand({-1, 4});
      },
      moved({3, 4}, [](const Shape& i) {
        return Shape{i[0], 0};
      }));
  add(
      expand, "new dimensions", {3},
      [](const Tensor& x) {
        return x.expand({2, 2, 3});
      },
      moved({2, 2, 3}, [](const Shape& i) { return Shape{i[2]}; }));
  add(
      expand, "to nothing", {1}, [](const Tensor& x) { return x.expand({0}); },
      moved({0}, [](const Shape&) { return Shape{0}; }));
  expand.error("a size other than 1", [] { ones({3}).expand({4}); });
  expand.error("fewer dimensions", [] { ones({3, 3}).expand({3}); });
}

void register_copies(std::vector<Entry>& entries) {
  Entry& clone = movement(entries, "clone");
  add(
      clone, "a matrix", {3, 5}, [](const Tensor& x) { return x.clone(); }, reshaped({3, 5}));
  add(
      clone, "an image", {2, 3, 4, 5}, [](const Tensor& x) { return x.clone(); }, reshaped({2, 3, 4, 5}));
  Entry& contiguous = movement(entries, "contiguous");
  add(
      contiguous, "a matrix", {3, 5}, [](const Tensor& x) { return x.contiguous(); }, reshaped({3, 5}));
  add(
      contiguous, "an image", {2, 3, 4, 5}, [](const Tensor& x) { return x.contiguous(); }, reshaped({2, 3, 4, 5}));
  Entry& channels_last = movement(entries, "channels_last");
  add(
      channels_last, "images", {2, 3, 2, 3}, [](const Tensor& x) { return x.channels_last(); }, reshaped({2, 3, 2, 3}));
  channels_last.error("rank 3", [] { ones({2, 3, 4}).channels_last(); });
}

}  // namespace

void register_views(std::vector<Entry>& entries) {
  register_reshapes(entries);
  register_permutations(entries);
  register_slices(entries);
  register_copies(entries);
}

}  // namespace halfgrad::testing
