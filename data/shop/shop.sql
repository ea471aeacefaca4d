-- The shop's five tables, from its recorded changelogs. In the project's folder:
--   ebbtide sql --defs .ebbtide/shop/defs --root .ebbtide/shop -f data/shop/shop.sql
-- The job goes on by itself; SHOW JOBS tells how it goes. truth/ has what the tables must be in the end.

CREATE SOURCE customers_log (
  customer_id BIGINT NOT NULL, name STRING NOT NULL, email STRING, balance DECIMAL(14,2), born DATE, vip BOOLEAN NOT NULL,
  attrs STRING, score DOUBLE, updated_at TIMESTAMP_NTZ NOT NULL, loyalty_tier STRING DEFAULT 'basic',
  PRIMARY KEY (customer_id)
) WITH (
  path = 'data/shop/capture', topic = 'shop.public.customers', format = debezium, sequence = '_lsn', max_files_per_step = 10
);
CREATE TABLE customers (
  customer_id BIGINT NOT NULL, name STRING NOT NULL, email STRING, balance DECIMAL(14,2), born DATE, vip BOOLEAN NOT NULL,
  attrs STRING, score DOUBLE, updated_at TIMESTAMP_NTZ NOT NULL, loyalty_tier STRING DEFAULT 'basic',
  PRIMARY KEY (customer_id)
) WITH (ttl = '30d');

CREATE SOURCE orders_log (
  order_id BIGINT NOT NULL, customer_id BIGINT, status STRING NOT NULL, total DECIMAL(14,2), currency STRING, notes STRING,
  placed_at TIMESTAMP NOT NULL, updated_at TIMESTAMP_NTZ NOT NULL, ship_on DATE, meta STRING,
  discount DECIMAL(14,2) DEFAULT NULL,
  PRIMARY KEY (order_id)
) WITH (
  path = 'data/shop/capture', topic = 'shop.public.orders', format = debezium, sequence = '_lsn', max_files_per_step = 10
);
CREATE TABLE orders (
  order_id BIGINT NOT NULL, customer_id BIGINT, status STRING NOT NULL, total DECIMAL(14,2), currency STRING, notes STRING,
  placed_at TIMESTAMP NOT NULL, updated_at TIMESTAMP_NTZ NOT NULL, ship_on DATE, meta STRING,
  discount DECIMAL(14,2) DEFAULT NULL,
  PRIMARY KEY (order_id)
) WITH (ttl = '30d');

CREATE SOURCE order_items_log (
  order_id BIGINT NOT NULL, line_no INT NOT NULL, sku STRING NOT NULL, qty INT NOT NULL, unit_price DECIMAL(18,6),
  tax_rate FLOAT, gift_msg STRING, tags ARRAY<STRING>,
  PRIMARY KEY (order_id, line_no)
) WITH (
  path = 'data/shop/capture', topic = 'shop.public.order_items', format = debezium, sequence = '_lsn', max_files_per_step = 10
);
CREATE TABLE order_items (
  order_id BIGINT NOT NULL, line_no INT NOT NULL, sku STRING NOT NULL, qty INT NOT NULL, unit_price DECIMAL(18,6),
  tax_rate FLOAT, gift_msg STRING, tags ARRAY<STRING>,
  PRIMARY KEY (order_id, line_no)
) WITH (ttl = '30d');

CREATE SOURCE price_list_log (
  sku STRING NOT NULL, price DECIMAL(18,6) NOT NULL, valid_from TIMESTAMP_NTZ, weight DECIMAL(38,9),
  PRIMARY KEY (sku)
) WITH (
  path = 'data/shop/capture', topic = 'shop.public.price_list', format = debezium, format.time_units = '{valid_from: ms}',
  sequence = '_lsn', max_files_per_step = 10
);
CREATE TABLE price_list (
  sku STRING NOT NULL, price DECIMAL(18,6) NOT NULL, valid_from TIMESTAMP_NTZ, weight DECIMAL(38,9),
  PRIMARY KEY (sku)
) WITH (ttl = '30d');

-- The changelog of a join: it has no sequence to go by, so changes apply in order of arrival.
CREATE SOURCE order_balances_log (
  order_id BIGINT NOT NULL, customer_id BIGINT, status STRING NOT NULL, total DECIMAL(14,2), balance DECIMAL(14,2), email STRING,
  PRIMARY KEY (order_id)
) WITH (
  path = 'data/shop/join', records = value, format = plain, format.position = '[subtask, seq]', max_files_per_step = 10
);
CREATE TABLE order_balances (
  order_id BIGINT NOT NULL, customer_id BIGINT, status STRING NOT NULL, total DECIMAL(14,2), balance DECIMAL(14,2), email STRING,
  PRIMARY KEY (order_id)
) WITH (ttl = '30d');

EXECUTE STATEMENT SET BEGIN
  INSERT INTO customers SELECT * FROM customers_log;
  INSERT INTO orders SELECT * FROM orders_log;
  INSERT INTO order_items SELECT * FROM order_items_log;
  INSERT INTO price_list SELECT * FROM price_list_log;
  INSERT INTO order_balances SELECT * FROM order_balances_log;
END;
