"""The Delta protocol, read without Spark."""
