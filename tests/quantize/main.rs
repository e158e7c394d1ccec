//! Names of quantizations, configurations, recipes, and whole files.

mod config;
mod spec;
