//! The setters of the options that several builders have, written once. A builder that expands these macros must have a
//! method `option`, which sets an option by its name and checks the value.

/// The setters that all builders have. On the client builder, these setters set the client's defaults.
macro_rules! lease_setters {
    () => {
        /// Sets the time for which the nodes keep a lease that is not extended: 10 ms to 24 h. A client's default is
        /// 10 s.
        pub fn ttl(self, ttl: std::time::Duration) -> Self {
            self.option(Dialect::Rust, "ttl", &OptionValue::seconds(ttl))
        }

        /// Sets whether leases are extended automatically until they are released. A client's default is true.
        pub fn auto_extend(self, auto_extend: bool) -> Self {
            self.option(Dialect::Rust, "auto_extend", &OptionValue::Bool(auto_extend))
        }

        /// Sets how long a lease is renewed after its holder's last [heartbeat](crate::Lease::heartbeat): 10 ms to
        /// 24 h. Zero, which is a client's default, means that renewal needs no heartbeats. Without `auto_extend`, this
        /// option has no effect.
        pub fn heartbeat_timeout(self, timeout: std::time::Duration) -> Self {
            self.option(Dialect::Rust, "heartbeat_timeout", &OptionValue::seconds(timeout))
        }

        /// Sets the maximum time that a lease can be held, even if it is extended: 10 ms or more. If you set a value,
        /// the value also limits the `ttl`. A client's default is 1 h; this default does not limit the `ttl`.
        pub fn max_hold(self, max_hold: std::time::Duration) -> Self {
            self.option(Dialect::Rust, "max_hold", &OptionValue::seconds(max_hold))
        }

        /// Allows leases to be held without a limit.
        pub fn unlimited_hold(self) -> Self {
            self.option(Dialect::Rust, "max_hold", &OptionValue::Null)
        }

        /// Sets the holder name that other clients see: at most 128 bytes, without control characters. An empty name
        /// means no name. A client's default is `hostname:pid` of the process that acquires the lease. The nodes store
        /// the name in the value of the key.
        pub fn holder(self, name: impl Into<String>) -> Self {
            self.option(Dialect::Rust, "holder", &OptionValue::Text(name.into()))
        }

        /// Sets how long the nodes keep the key after the lease is released: 10 ms to 24 h. During this time, no other
        /// client can acquire the lock. Zero, which is a client's default, means that the nodes delete the key on
        /// release. See [`Lease::release_and_keep`](crate::Lease::release_and_keep).
        pub fn keep(self, keep: std::time::Duration) -> Self {
            self.option(Dialect::Rust, "keep", &OptionValue::seconds(keep))
        }

        /// Sets options by name, like `option`, in the order given. For language bindings.
        #[doc(hidden)]
        pub fn options<N: AsRef<str>>(
            self,
            dialect: Dialect,
            given: impl IntoIterator<Item = (N, OptionValue)>,
        ) -> Self {
            let set = |builder: Self, (name, value): (N, OptionValue)| {
                builder.option(dialect, name.as_ref(), &value)
            };
            given.into_iter().fold(self, set)
        }
    };
}

/// The setters for builders that accept a limit for the wait: all builders except `Election`.
macro_rules! wait_setters {
    () => {
        /// Sets the maximum time that an acquire waits for other holders. Zero means a single attempt. A client's
        /// default is 10 s.
        pub fn wait(self, wait: std::time::Duration) -> Self {
            self.option(Dialect::Rust, "wait", &OptionValue::seconds(wait))
        }

        /// Makes acquires wait for other holders without a limit.
        pub fn wait_forever(self) -> Self {
            self.option(Dialect::Rust, "wait", &OptionValue::Null)
        }
    };
}

pub(crate) use {lease_setters, wait_setters};
