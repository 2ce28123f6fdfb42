CREATE TABLE results (id text PRIMARY KEY, amount bigint NOT NULL);
CREATE TABLE journal (id text NOT NULL, amount bigint NOT NULL);
CREATE TABLE batches (job text, batch bigint, PRIMARY KEY (job, batch));
