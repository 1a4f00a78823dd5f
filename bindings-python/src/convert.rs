//! Conversion of Python values to core options, and of core errors to Python exceptions.
//!
//! It must not validate values: the core decides which ones it accepts, with the same errors in all
//! languages. Every other module of this crate calls it.

use crate::exit::outlives_process;
use pyo3::exceptions::{PyRuntimeError, PySystemExit};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDelta, PyDict, PyFloat, PyInt, PyString, PyTuple};
use quorlock::{Error, ErrorCode, NodeReport, OptionValue};

/// Converts a dict of keyword arguments to core options.
pub(crate) fn values(options: &Bound<'_, PyDict>) -> PyResult<Vec<(String, OptionValue)>> {
    options.iter().map(|(name, given)| Ok((name.extract()?, value(&given)))).collect()
}

/// Converts a Python value to a core option. The core decides whether the value is valid.
pub(crate) fn value(given: &Bound<'_, PyAny>) -> OptionValue {
    if given.is_none() {
        return OptionValue::Null;
    }
    if let Ok(given) = given.cast::<PyBool>() {
        return OptionValue::Bool(given.is_true());
    }
    if let Some(number) = number(given) {
        return OptionValue::Number(number);
    }
    if let Ok(text) = given.cast::<PyString>() {
        // Surrogates are refused, not replaced: a replacement would make different strings equal.
        return match text.to_str() {
            Ok(text) => OptionValue::Text(text.to_owned()),
            Err(_) => OptionValue::Other("str with surrogates".to_owned()),
        };
    }
    if let Ok((first, second)) = given.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()
        && let (Some(first), Some(second)) = (number(&first), number(&second))
    {
        return OptionValue::Pair(first, second);
    }
    let name = given.get_type().name().map(|name| name.to_string());
    OptionValue::Other(name.unwrap_or_else(|_| "unknown".to_owned()))
}

/// Returns a number as it is and a `timedelta` in seconds; `None` for any other type.
fn number(given: &Bound<'_, PyAny>) -> Option<f64> {
    if given.is_instance_of::<PyBool>() {
        return None;
    }
    if given.is_instance_of::<PyInt>() || given.is_instance_of::<PyFloat>() {
        return given.extract().ok();
    }
    let delta = given.cast::<PyDelta>().ok()?;
    delta.call_method0("total_seconds").ok()?.extract().ok()
}

/// Returns the strings of an iterable. Returns `None` for anything else, also for a single string.
pub(crate) fn texts(given: &Bound<'_, PyAny>) -> Option<Vec<String>> {
    if given.is_instance_of::<PyString>() {
        return None;
    }
    given.try_iter().ok()?.map(|text| text.ok()?.extract().ok()).collect()
}

/// Converts a core error to the exception class of the same name in `quorlock._errors`.
///
/// At interpreter exit all clients are closed. A daemon thread that is waiting for a lock at that time gets
/// `SystemExit` instead of `ClosedError`, so that it ends without a traceback.
pub(crate) fn error(py: Python<'_>, error: &Error) -> PyErr {
    if error.code() == ErrorCode::Closed && outlives_process() {
        return PySystemExit::new_err(());
    }
    let made = || -> PyResult<PyErr> {
        let class = py.import("quorlock._errors")?.getattr(error.code().class())?;
        let (text, nodes) = (error.to_string(), reports(py, error.nodes())?);
        let raised = match error.code() {
            ErrorCode::Timeout => class.call1((text, error.resources(), nodes, error.holder())),
            _ => class.call1((text, error.resources(), nodes)),
        };
        Ok(PyErr::from_value(raised?))
    };
    made().unwrap_or_else(|_| PyRuntimeError::new_err(error.to_string()))
}

/// Converts the outcomes at the nodes to a tuple of `quorlock.NodeReport`.
pub(crate) fn reports<'py>(py: Python<'py>, nodes: &[NodeReport]) -> PyResult<Bound<'py, PyTuple>> {
    let class = py.import("quorlock._errors")?.getattr("NodeReport")?;
    let report =
        |node: &NodeReport| class.call1((&node.address, node.outcome.as_str(), &node.detail));
    PyTuple::new(py, nodes.iter().map(report).collect::<PyResult<Vec<_>>>()?)
}
