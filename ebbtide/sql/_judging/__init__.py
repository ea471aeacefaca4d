"""The gate before Spark: every statement is judged by the plan that Spark's parser makes of it, before it is executed."""
