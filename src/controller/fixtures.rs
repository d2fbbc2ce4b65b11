//! Objects and caches for tests.
