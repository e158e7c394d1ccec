//! Names of quantizations, configurations, recipes, and whole files.

mod config;
mod file;
mod importance;
mod module;
mod recipes;
mod spec;
