//! Python values to options, errors to Python exceptions.

use crate::exit::outlives_process;
use pyo3::exceptions::{PyRuntimeError, PySystemExit};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDelta, PyDict, PyFloat, PyInt, PyString};
use quorlock::{Error, ErrorCode, OptionValue};

/// The options in a dict of keyword arguments.
pub(crate) fn values(options: &Bound<'_, PyDict>) -> PyResult<Vec<(String, OptionValue)>> {
    options.iter().map(|(name, given)| Ok((name.extract()?, value(&given)))).collect()
}

/// A Python value as the core takes it. Whether it is acceptable is for the core to say.
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
        // Nothing takes the place of what UTF-8 lacks: two texts would become one.
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

/// A number, or a `timedelta` in seconds.
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

/// A list of strings; a string is none.
pub(crate) fn texts(given: &Bound<'_, PyAny>) -> Option<Vec<String>> {
    if given.is_instance_of::<PyString>() {
        return None;
    }
    given.try_iter().ok()?.map(|text| text.ok()?.extract().ok()).collect()
}

/// The Python exception for an error of the core: the class of that name in `quorlock._errors`.
///
/// The end of the process closes all clients. A daemon thread that waits for a lock then ends without a
/// traceback: `SystemExit` is what ends a thread silently.
pub(crate) fn error(py: Python<'_>, error: &Error) -> PyErr {
    if error.code() == ErrorCode::Closed && outlives_process() {
        return PySystemExit::new_err(());
    }
    let made = || -> PyResult<PyErr> {
        let errors = py.import("quorlock._errors")?;
        let report = errors.getattr("NodeReport")?;
        let nodes = error
            .nodes()
            .iter()
            .map(|node| report.call1((&node.address, node.outcome.as_str(), &node.detail)))
            .collect::<PyResult<Vec<_>>>()?;
        let class = errors.getattr(error.code().class())?;
        Ok(PyErr::from_value(class.call1((error.to_string(), error.resources(), nodes))?))
    };
    made().unwrap_or_else(|_| PyRuntimeError::new_err(error.to_string()))
}
