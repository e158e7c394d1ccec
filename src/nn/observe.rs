//! Watching what flows into packed layers, for example to collect an importance matrix.

use std::cell::RefCell;
use std::rc::Rc;

use burn::module::ParamId;
use burn::tensor::{Int, Tensor};

use super::param::GgmlParam;

/// Told of every input of a packed layer; see [`observe`].
pub trait InputObserver {
    /// `input` `[n, cols]` is about to be multiplied with the weight `id` ([`GgmlParam::id`]).
    fn linear(&mut self, id: ParamId, input: Tensor<2>);

    /// `input` `[tokens, 1 | chosen, cols]` is about to be multiplied with the matrices `ids` `[tokens, chosen]` of the
    /// stack `id` of `matrices`.
    fn experts(&mut self, id: ParamId, matrices: usize, input: Tensor<3>, ids: Tensor<2, Int>);
}

thread_local! {
    static OBSERVER: RefCell<Option<Rc<RefCell<dyn InputObserver>>>> = const { RefCell::new(None) };
}

/// Runs `f` and tells `observer` of every input of a packed layer that this thread computes meanwhile.
pub fn observe<R>(observer: Rc<RefCell<dyn InputObserver>>, f: impl FnOnce() -> R) -> R {
    /// Puts the former observer back, also when `f` panics.
    struct Restore(Option<Rc<RefCell<dyn InputObserver>>>);

    impl Drop for Restore {
        fn drop(&mut self) {
            OBSERVER.set(self.0.take());
        }
    }

    let _restore = Restore(OBSERVER.replace(Some(observer)));
    f()
}

fn current() -> Option<Rc<RefCell<dyn InputObserver>>> {
    OBSERVER.with_borrow(Clone::clone)
}

/// Called by the layers before they multiply.
pub(super) fn linear<const D: usize>(weight: &GgmlParam, input: &Tensor<D>) {
    if let Some(observer) = current() {
        let width = input.dims()[D - 1];
        let rows = input.shape().num_elements() / width.max(1);
        let input = input.clone().reshape([rows, width]);
        observer.borrow_mut().linear(weight.id(), input);
    }
}

/// As [`linear`], for a stack.
pub(super) fn experts(weight: &GgmlParam, input: &Tensor<3>, ids: &Tensor<2, Int>) {
    if let Some(observer) = current() {
        let mut observer = observer.borrow_mut();
        observer.experts(weight.id(), weight.matrices(), input.clone(), ids.clone());
    }
}
