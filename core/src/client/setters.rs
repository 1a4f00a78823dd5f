//! The setters of the options that several builders have, written once. A builder that expands these macros must have a
//! method `option`, which sets an option by its name and checks the value.

/// The setters for the builders of leases, and for the client builder, which sets their defaults.
macro_rules! lease_setters {
    () => {
        /// Sets the time for which the nodes keep a lease that is not extended: 10 ms to 24 h. A client's default is
        /// 10 s.
        pub fn ttl(self, ttl: std::time::Duration) -> Self {
            self.option(Dialect::Rust, "ttl", &OptionValue::Number(ttl.as_secs_f64()))
        }

        /// Sets whether leases are extended automatically until they are released. A client's default is true.
        pub fn auto_extend(self, auto_extend: bool) -> Self {
            self.option(Dialect::Rust, "auto_extend", &OptionValue::Bool(auto_extend))
        }

        /// Sets the maximum time that a lease can be held, despite extensions: 10 ms or more. If you set a value, the
        /// value also limits the `ttl`. A client's default is 1 h; this default does not limit the `ttl`.
        pub fn max_hold(self, max_hold: std::time::Duration) -> Self {
            self.option(Dialect::Rust, "max_hold", &OptionValue::Number(max_hold.as_secs_f64()))
        }

        /// Allows leases to be held without a limit.
        pub fn unlimited_hold(self) -> Self {
            self.option(Dialect::Rust, "max_hold", &OptionValue::Null)
        }

        /// Sets the name of the holder, which others see: at most 128 bytes without control characters; empty for
        /// none. A client's default is `hostname:pid` of the process that acquires the lease. The name is part of the
        /// key's value on the nodes.
        pub fn holder(self, name: impl Into<String>) -> Self {
            self.option(Dialect::Rust, "holder", &OptionValue::Text(name.into()))
        }

        /// Sets how long the nodes keep the key of a released lease, so that nobody else acquires the lock during that
        /// time: 10 ms to 24 h from the release. Zero, a client's default, deletes the key. See
        /// [`Lease::release_and_keep`](crate::Lease::release_and_keep).
        pub fn keep(self, keep: std::time::Duration) -> Self {
            self.option(Dialect::Rust, "keep", &OptionValue::Number(keep.as_secs_f64()))
        }
    };
}

/// The setters for builders whose wait may be limited: all except the candidate of an election.
macro_rules! wait_setters {
    () => {
        /// Sets the maximum time that an acquire waits for other holders. Zero means a single attempt. A client's
        /// default is 10 s.
        pub fn wait(self, wait: std::time::Duration) -> Self {
            self.option(Dialect::Rust, "wait", &OptionValue::Number(wait.as_secs_f64()))
        }

        /// Makes acquires wait for other holders without a limit.
        pub fn wait_forever(self) -> Self {
            self.option(Dialect::Rust, "wait", &OptionValue::Null)
        }
    };
}

pub(crate) use {lease_setters, wait_setters};
