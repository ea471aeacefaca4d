"""SQL over pipelines: declare changelogs and tables, fill them, ask for them. Source: FLIP-24."""
