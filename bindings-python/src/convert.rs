//! Conversion of Python values to core options, and of core errors and results to Python.
//!
//! It must not validate values: the core decides which ones it accepts, with the same errors in all
//! languages. Every other module of this crate calls it.

use crate::imports::{ERRORS, WARN};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyException, PyRuntimeError, PyRuntimeWarning};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDelta, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use quorlock::{
    Diagnosis, Dialect, Error, ErrorCode, Leader, NodeReport, OptionValue, SemaphoreStatus, Status,
    unit_warning, wrong_resource,
};

/// Converts a dict of keyword arguments to core options.
pub(crate) fn values(options: &Bound<'_, PyDict>) -> PyResult<Vec<(String, OptionValue)>> {
    if let Some(ttl) = options.get_item("ttl")? {
        warn_about_unit(&ttl)?;
    }
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
            Err(_) => OptionValue::NotUnicode,
        };
    }
    if let Ok(dict) = given.cast::<PyDict>() {
        let names: Option<_> =
            dict.iter().map(|(name, given)| text(&name).zip(Some(item(&given)))).collect();
        return names.map_or_else(|| OptionValue::Other(NOT_NAMES.to_owned()), OptionValue::Map);
    }
    match items(given) {
        Some(items) => OptionValue::List(items.iter().map(item).collect()),
        None => OptionValue::Other(kind(given)),
    }
}

/// Converts a value, or returns `None` if it is `None`.
pub(crate) fn given(given: &Bound<'_, PyAny>) -> Option<OptionValue> {
    (!given.is_none()).then(|| value(given))
}

/// A dict whose keys are not all strings, as an error message calls it.
const NOT_NAMES: &str = "a dict with keys that are no strings";

fn text(given: &Bound<'_, PyAny>) -> Option<String> {
    given.cast::<PyString>().ok()?.to_str().ok().map(str::to_owned)
}

/// Returns the items of a list or a tuple.
fn items<'py>(given: &Bound<'py, PyAny>) -> Option<Vec<Bound<'py, PyAny>>> {
    let list = given.cast::<PyList>().map(|list| list.iter().collect());
    list.or_else(|_| given.cast::<PyTuple>().map(|tuple| tuple.iter().collect())).ok()
}

/// Converts an item of a list or a dict. The items of an inner one are not converted: a list may be an
/// item of itself.
fn item(given: &Bound<'_, PyAny>) -> OptionValue {
    match items(given) {
        None if !given.is_instance_of::<PyDict>() => value(given),
        _ => OptionValue::Other(kind(given)),
    }
}

/// Returns a value's type as an error message calls it, such as `an object of class Redis`.
fn kind(given: &Bound<'_, PyAny>) -> String {
    if given.is_instance_of::<PyBytes>() {
        return "bytes (call .decode() first)".to_owned();
    }
    let kind = given.get_type();
    let named = kind.name().and_then(|name| Ok((name.to_string(), kind.module()?.to_string())));
    match named {
        Ok((name, module)) if module == "builtins" => {
            let article = if name.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
            format!("{article} {name}")
        }
        Ok((name, _)) => format!("an object of class {name}"),
        Err(_) => "an object".to_owned(),
    }
}

/// Returns a number as it is and a `timedelta` in seconds; `None` for any other type.
fn number(given: &Bound<'_, PyAny>) -> Option<f64> {
    if given.is_instance_of::<PyBool>() {
        return None;
    }
    if given.is_instance_of::<PyInt>() {
        // An integer that is too large for a float is larger than all limits.
        let is_negative = || given.lt(0).unwrap_or_default();
        let too_large = || if is_negative() { f64::NEG_INFINITY } else { f64::INFINITY };
        return Some(given.extract().unwrap_or_else(|_| too_large()));
    }
    if given.is_instance_of::<PyFloat>() {
        return given.extract().ok();
    }
    let delta = given.cast::<PyDelta>().ok()?;
    delta.call_method0("total_seconds").ok()?.extract().ok()
}

/// Converts the nodes of a client: any iterable except a string or bytes becomes a list. Fails if the
/// iteration raises.
pub(crate) fn nodes(given: &Bound<'_, PyAny>) -> PyResult<OptionValue> {
    // An object with only `__getitem__`, such as a Redis client, is not meant to be iterated.
    let is_iterable = given.hasattr("__iter__")? && !given.is_instance_of::<PyBytes>();
    if !is_iterable || given.is_instance_of::<PyString>() {
        return Ok(value(given));
    }
    let nodes = given.try_iter()?.map(|node| Ok(item(&node?)));
    Ok(OptionValue::List(nodes.collect::<PyResult<_>>()?))
}

/// Converts the resources of a lock to strings. Raises `ConfigError` if one is not a string.
pub(crate) fn resources(given: &Bound<'_, PyTuple>) -> PyResult<Vec<String>> {
    let is_one = given.len() == 1;
    let name = |(position, name)| {
        resource_at(
            (!is_one).then_some(position),
            &name,
            "; pass several resources as separate arguments, such as lock(\"a\", \"b\")",
        )
    };
    given.iter().enumerate().map(name).collect()
}

/// Converts a single resource to a string. Raises `ConfigError` if it is not a string.
pub(crate) fn resource(given: &Bound<'_, PyAny>) -> PyResult<String> {
    resource_at(None, given, "")
}

/// `advice` is for a list or a tuple.
fn resource_at(
    position: Option<usize>,
    given: &Bound<'_, PyAny>,
    advice: &str,
) -> PyResult<String> {
    let wrong = match item(given) {
        OptionValue::Text(name) => return Ok(name),
        OptionValue::Other(kind) if items(given).is_some() => {
            OptionValue::Other(format!("{kind}{advice}"))
        }
        wrong => wrong,
    };
    Err(error(given.py(), &wrong_resource(Dialect::Python, position, "a string", &wrong)))
}

/// Warns if a ttl was probably meant in milliseconds. A `timedelta` names its unit. The warning
/// points at the innermost line that is not of this package.
pub(crate) fn warn_about_unit(given: &Bound<'_, PyAny>) -> PyResult<()> {
    if given.is_instance_of::<PyDelta>() {
        return Ok(());
    }
    let py = given.py();
    match unit_warning(Dialect::Python, &value(given)) {
        Some(text) => {
            WARN.get(py)?.call1((py.get_type::<PyRuntimeWarning>(), text))?;
            Ok(())
        }
        None => Ok(()),
    }
}

/// Converts a core error to the exception class of the same name in `quorlock._errors`. Returns what a signal handler
/// raised meanwhile, such as `KeyboardInterrupt`, instead.
pub(crate) fn error(py: Python<'_>, error: &Error) -> PyErr {
    let made = || -> PyResult<PyErr> {
        let class = ERRORS.get(py)?.get_item(error.code().class())?;
        let text = error.to_string();
        let nodes = reports(py, error.nodes())?;
        let raised = match error.code() {
            ErrorCode::Timeout => class.call1((text, error.resources(), nodes, error.holder())),
            ErrorCode::LeaseLost => class.call1((text, error.resources(), nodes, error.reason())),
            _ => class.call1((text, error.resources(), nodes)),
        };
        Ok(PyErr::from_value(raised?))
    };
    made().unwrap_or_else(|raised| match raised.is_instance_of::<PyException>(py) {
        true => PyRuntimeError::new_err(error.to_string()),
        false => raised,
    })
}

/// Converts the outcomes at the nodes to a tuple of `quorlock.NodeReport`.
pub(crate) fn reports<'py>(py: Python<'py>, nodes: &[NodeReport]) -> PyResult<Bound<'py, PyTuple>> {
    let class = ERRORS.get(py)?.get_item("NodeReport")?;
    let report =
        |node: &NodeReport| class.call1((&node.address, node.outcome.as_str(), &node.detail));
    PyTuple::new(py, nodes.iter().map(report).collect::<PyResult<Vec<_>>>()?)
}

/// The result of a core operation.
pub(crate) trait IntoPython: Send + 'static {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>>;
}

/// An error is raised.
impl<T: IntoPython> IntoPython for quorlock::Result<T> {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.map_err(|e| error(py, &e))?.into_python(py)
    }
}

impl<T: IntoPython> IntoPython for Option<T> {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.map_or_else(|| Ok(py.None()), |value| value.into_python(py))
    }
}

impl IntoPython for () {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(py.None())
    }
}

impl IntoPython for bool {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.into_py_any(py)
    }
}

/// The loss of a lease becomes whether it was lost.
impl IntoPython for Option<Error> {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.is_some().into_python(py)
    }
}

impl IntoPython for Leader {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        (self.holder, self.fence).into_py_any(py)
    }
}

/// Becomes text and JSON.
impl IntoPython for Diagnosis {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        (self.to_string(), self.to_json()).into_py_any(py)
    }
}

/// Becomes JSON.
impl IntoPython for Status {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.to_json().into_py_any(py)
    }
}

/// Becomes JSON.
impl IntoPython for SemaphoreStatus {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.to_json().into_py_any(py)
    }
}

impl IntoPython for Vec<NodeReport> {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(reports(py, &self)?.into_any().unbind())
    }
}
